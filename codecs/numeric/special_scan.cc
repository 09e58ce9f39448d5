#include "codecs/numeric/special_scan.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codecs/numeric/special_scan.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename Word>
bool AnySpecial(const uint8_t* bytes, size_t count, Word exponent) {
  size_t at = 0;
  bool special = false;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<uint8_t> d8;
  const hn::Repartition<Word, decltype(d8)> d;
  const size_t step = hn::Lanes(d8);
  const auto wanted = hn::Set(d, exponent);
  // An exponent with all bits set leaves 0 here; the smallest lane that was seen tells.
  auto least = hn::Set(d, static_cast<Word>(~Word{0}));
  for (; at + step <= count; at += step) {
    least = hn::Min(least, hn::AndNot(hn::BitCast(d, hn::LoadU(d8, bytes + at)), wanted));
  }
  special = !hn::AllFalse(d, hn::Eq(least, hn::Zero(d)));
#endif
  for (; at < count; at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, bytes + at, sizeof(Word));
    special |= (word & exponent) == exponent;
  }
  return special;
}

bool AnySpecialTarget(const uint8_t* bytes, size_t count, uint32_t value_bytes, uint32_t exponent) {
  if (value_bytes == 1) return AnySpecial(bytes, count, static_cast<uint8_t>(exponent));
  if (value_bytes == 2) return AnySpecial(bytes, count, static_cast<uint16_t>(exponent));
  return AnySpecial(bytes, count, exponent);
}

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firn {
HWY_EXPORT(AnySpecialTarget);

void SpecialScan::Feed(ByteSpan piece) {
  if (found_) return;
  while (carried_bytes_ > 0 && !piece.empty()) {
    carried_[carried_bytes_++] = piece.front();
    piece = piece.subspan(1);
    if (carried_bytes_ < value_bytes_) continue;
    found_ = HWY_DYNAMIC_DISPATCH(AnySpecialTarget)(carried_.data(), value_bytes_, value_bytes_, exponent_);
    carried_bytes_ = 0;
  }
  size_t whole = piece.size() - piece.size() % value_bytes_;
  found_ = found_ || HWY_DYNAMIC_DISPATCH(AnySpecialTarget)(piece.data(), whole, value_bytes_, exponent_);
  for (uint8_t byte : piece.subspan(whole)) carried_[carried_bytes_++] = byte;
}

}  // namespace firn
#endif
