#include "tests/support/known_ranges.h"

#include <algorithm>
#include <vector>

#include "base/status.h"

namespace firn {
namespace {

constexpr uint64_t kBatchMax = 256;
constexpr uint64_t kBatchBytesMax = uint64_t{64} << 20;

uint64_t BatchOf(const KnownModel& model, uint64_t count) {
  return std::clamp<uint64_t>(kBatchBytesMax / (model.part_values() * 4), 1, std::min(kBatchMax, count));
}

void Count(const absl::Status& status, bool right, uint64_t number, RangeResult* out) {
  if (status.ok()) {
    ++(right ? out->good : out->wrong);
  } else {
    ++(status.code() == absl::StatusCode::kNotFound ? out->missed : out->failed);
  }
  if (out->first_failure.empty() && !(status.ok() && right)) {
    out->first_failure = "block " + std::to_string(number) + ": " + (status.ok() ? "wrong bytes" : Message(status));
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const RangeResult& result) {
  return out << result.good << " good, " << result.missed << " missed, " << result.failed << " failed, " << result.wrong
             << " wrong; first: " << result.first_failure;
}

RangeResult PutRange(firnkv::Client& client, const firnkv::Namespace& ns, const KnownModel& model, uint64_t first,
                     uint64_t count, const firnkv::PutOptions& options) {
  RangeResult out;
  if (count == 0) return out;
  const uint64_t batch = BatchOf(model, count);
  for (uint64_t at = first; at < first + count; at += batch) {
    uint64_t end = std::min(at + batch, first + count);
    std::vector<std::vector<uint16_t>> values;
    std::vector<firnkv::PutItem> items;
    for (uint64_t number = at; number < end; ++number) {
      values.push_back(KnownValues(model, number));
      const auto* bytes = reinterpret_cast<const uint8_t*>(values.back().data());
      firnkv::PutItem item{.key = KnownKey(number), .tokens = model.tokens};
      item.parts.k = firnkv::SourcePieces(bytes, model.part_values() * 2);
      item.parts.v = firnkv::SourcePieces(bytes + model.part_values() * 2, model.part_values() * 2);
      items.push_back(std::move(item));
    }
    auto results = client.Put(ns, items, options);
    for (uint64_t number = at; number < end; ++number) {
      Count(results.ok() ? (*results)[number - at].status : results.status(), true, number, &out);
    }
  }
  return out;
}

RangeResult GetRange(firnkv::Client& client, const firnkv::Namespace& ns, const KnownModel& model, uint64_t first,
                     uint64_t count, const firnkv::GetOptions& options) {
  RangeResult out;
  if (count == 0) return out;
  const uint64_t batch = BatchOf(model, count);
  firnkv::GetOptions get = options;
  get.representation = firnkv::Representation::kFp16;
  const size_t part_bytes = model.part_values() * 2;
  std::vector<uint16_t> values(batch * 2 * model.part_values());
  for (uint64_t at = first; at < first + count; at += batch) {
    uint64_t end = std::min(at + batch, first + count);
    std::fill(values.begin(), values.end(), uint16_t{0x3C00});
    std::vector<firnkv::GetItem> items;
    for (uint64_t number = at; number < end; ++number) {
      auto* bytes = reinterpret_cast<uint8_t*>(values.data()) + (number - at) * 2 * part_bytes;
      firnkv::GetItem item{.key = KnownKey(number)};
      item.parts.k = firnkv::TargetPieces(bytes, part_bytes);
      item.parts.v = firnkv::TargetPieces(bytes + part_bytes, part_bytes);
      items.push_back(std::move(item));
    }
    auto results = client.Get(ns, items, get);
    for (uint64_t number = at; number < end; ++number) {
      if (!results.ok()) {
        Count(results.status(), false, number, &out);
        continue;
      }
      const firnkv::GetResult& got = (*results)[number - at];
      std::span<const uint16_t> block(values.data() + (number - at) * 2 * model.part_values(), 2 * model.part_values());
      bool right = got.status.ok() && KnownError(model, number, block) <= ErrorLimit(got.served.Min());
      Count(got.status, right, number, &out);
    }
  }
  return out;
}

}  // namespace firn
