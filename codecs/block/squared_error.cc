#include "codecs/block/squared_error.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codecs/block/squared_error.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Each of the eight sums belongs to one lane of one of 8 / lanes vectors.
void AddSquaredErrorTarget(const float* source, const float* decoded, size_t count, SquaredError* total) {
  const hn::CappedTag<double, 8> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const size_t lanes = hn::Lanes(dd);
  alignas(64) double differences[8] = {}, norms[8] = {};
  size_t i = 0;
  for (size_t part = 0; part < 8; part += lanes) {
    auto difference = hn::Load(dd, differences + part), norm = hn::Load(dd, norms + part);
    for (i = 0; i + 8 <= count; i += 8) {
      const auto x = hn::PromoteTo(dd, hn::LoadU(df, source + i + part));
      const auto d = hn::Sub(x, hn::PromoteTo(dd, hn::LoadU(df, decoded + i + part)));
      difference = hn::Add(difference, hn::Mul(d, d));
      norm = hn::Add(norm, hn::Mul(x, x));
    }
    hn::Store(difference, dd, differences + part);
    hn::Store(norm, dd, norms + part);
  }
  for (; i < count; ++i) {
    const double x = source[i], d = x - decoded[i];
    differences[i % 8] += d * d;
    norms[i % 8] += x * x;
  }
  auto joined = [](const double* sums) {
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  };
  total->difference += joined(differences);
  total->norm += joined(norms);
}

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firn {

HWY_EXPORT(AddSquaredErrorTarget);

void AddSquaredError(const float* source, const float* decoded, size_t count, SquaredError* total) {
  HWY_DYNAMIC_DISPATCH(AddSquaredErrorTarget)(source, decoded, count, total);
}

float SquaredError::Relative() const {
  if (difference == 0) return 0;
  return static_cast<float>(std::sqrt(difference / norm));
}

}  // namespace firn
#endif
