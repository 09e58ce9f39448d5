#include "firnkv/types.h"

#include "firnkv/watch.h"

namespace firnkv {
namespace {

template <typename T>
struct Named {
  T value;
  std::string_view name;
};

constexpr Named<Precision> kPrecisions[] = {{Precision::kNone, "none"}, {Precision::kInt2, "int2"},
                                            {Precision::kInt3, "int3"}, {Precision::kInt4, "int4"},
                                            {Precision::kInt8, "int8"}, {Precision::kExact, "exact"}};
constexpr Named<DType> kDTypes[] = {{DType::kFp16, "fp16"},        {DType::kBf16, "bf16"},
                                    {DType::kFp8E4m3, "fp8_e4m3"}, {DType::kFp8E5m2, "fp8_e5m2"},
                                    {DType::kBytes, "bytes"},      {DType::kFp32, "fp32"}};
constexpr Named<EventKind> kEvents[] = {{EventKind::kStored, "stored"},
                                        {EventKind::kDemoted, "demoted"},
                                        {EventKind::kDegraded, "degraded"},
                                        {EventKind::kPromoted, "promoted"},
                                        {EventKind::kRemoved, "removed"}};

template <typename T, size_t kSize>
std::string_view NameOf(const Named<T> (&table)[kSize], T value) {
  for (const auto& row : table) {
    if (row.value == value) return row.name;
  }
  return "unknown";
}

template <typename T, size_t kSize>
std::optional<T> ValueOf(const Named<T> (&table)[kSize], std::string_view name) {
  for (const auto& row : table) {
    if (row.name == name) return row.value;
  }
  return std::nullopt;
}

bool IsFp8(DType dtype) { return dtype == DType::kFp8E4m3 || dtype == DType::kFp8E5m2; }

}  // namespace

std::string_view PrecisionName(Precision precision) { return NameOf(kPrecisions, precision); }
std::optional<Precision> PrecisionFromName(std::string_view name) { return ValueOf(kPrecisions, name); }
std::string_view DTypeName(DType dtype) { return NameOf(kDTypes, dtype); }
std::optional<DType> DTypeFromName(std::string_view name) { return ValueOf(kDTypes, name); }
std::string_view EventKindName(EventKind kind) { return NameOf(kEvents, kind); }

uint32_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kFp16:
    case DType::kBf16:
      return 2;
    case DType::kFp8E4m3:
    case DType::kFp8E5m2:
    case DType::kBytes:
      return 1;
    case DType::kFp32:
      return 4;
    default:
      return 0;
  }
}

std::vector<Digest> Namespace::Keys(std::span<const uint32_t> tokens, std::span<const std::string_view> extras,
                                    bool with_tail) const {
  return ChainedKeys({.model_fingerprint = model_fingerprint.bytes,
                      .tokens = tokens,
                      .block_tokens = facts.block_tokens,
                      .extras = extras,
                      .parent = {},
                      .with_tail = with_tail});
}

uint64_t Namespace::KBytes(uint32_t tokens) const {
  return uint64_t{facts.layers()} * facts.kv_heads * tokens * facts.k_width * DTypeBytes(facts.dtype);
}

uint64_t Namespace::VBytes(uint32_t tokens) const {
  return uint64_t{facts.layers()} * facts.kv_heads * tokens * facts.v_width * DTypeBytes(facts.dtype);
}

uint64_t Namespace::KScaleBytes() const {
  return IsFp8(facts.dtype) && facts.k_width > 0 ? uint64_t{facts.layers()} * facts.kv_heads * sizeof(float) : 0;
}

uint64_t Namespace::VScaleBytes() const {
  return IsFp8(facts.dtype) && facts.v_width > 0 ? uint64_t{facts.layers()} * facts.kv_heads * sizeof(float) : 0;
}

}  // namespace firnkv
