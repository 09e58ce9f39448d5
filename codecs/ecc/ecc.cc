#include "codecs/ecc/ecc.h"

#include "base/check.h"
#include "base/status.h"
#include "codecs/ecc/reed_solomon.h"
#include "codecs/ecc/secded.h"

namespace firn {
namespace {

constexpr std::array<const char*, kProtectionClasses> kClassNames = {"meta", "base", "p4", "p8"};

secded::Path FastestPath() { return secded::Paths().back(); }

}  // namespace

std::string_view EccCodeName(EccCode code) {
  switch (code) {
    case EccCode::kNone:
      return "none";
    case EccCode::kSecded:
      return "secded";
    case EccCode::kReedSolomon:
      return "rs";
  }
  FIRN_CHECK(false);
}

absl::StatusOr<EccPolicy> EccPolicy::Unpack(uint8_t bits) {
  EccPolicy policy;
  for (uint32_t i = 0; i < kProtectionClasses; ++i) {
    const uint8_t code = bits >> 2 * i & 3u;
    if (code > static_cast<uint8_t>(EccCode::kReedSolomon)) {
      return DataLoss("error-correcting code {} of class {} is not known (policy {:#04x})", code, kClassNames[i], bits);
    }
    policy.codes_[i] = static_cast<EccCode>(code);
  }
  return policy;
}

std::string EccPolicy::ToString() const {
  if (*this == Uniform(codes_[0])) return std::string(EccCodeName(codes_[0]));
  std::string text;
  for (uint32_t i = 0; i < kProtectionClasses; ++i) {
    text += fmt::format("{}{}={}", i == 0 ? "" : ",", kClassNames[i], EccCodeName(codes_[i]));
  }
  return text;
}

uint64_t ParityBytes(EccCode code, uint64_t data_bytes) {
  switch (code) {
    case EccCode::kNone:
      return 0;
    case EccCode::kSecded:
      return secded::ParityBytes(data_bytes);
    case EccCode::kReedSolomon:
      return rs::ParityBytes(data_bytes);
  }
  FIRN_CHECK(false);
}

void ComputeParity(EccCode code, const RunBytes& data, const MutableRunBytes& parity) {
  FIRN_CHECK(parity.size() == ParityBytes(code, data.size()));
  switch (code) {
    case EccCode::kNone:
      return;
    case EccCode::kSecded:
      return secded::ComputeParity(FastestPath(), data, parity);
    case EccCode::kReedSolomon:
      return rs::ComputeParity(data, parity);
  }
}

bool ParityAgrees(EccCode code, const RunBytes& data, const RunBytes& parity) {
  FIRN_CHECK(parity.size() == ParityBytes(code, data.size()));
  switch (code) {
    case EccCode::kNone:
      return true;
    case EccCode::kSecded:
      return secded::ParityAgrees(FastestPath(), data, parity);
    case EccCode::kReedSolomon:
      return rs::ParityAgrees(data, parity);
  }
  FIRN_CHECK(false);
}

EccOutcome CorrectInPlace(EccCode code, const MutableRunBytes& data, const MutableRunBytes& parity) {
  FIRN_CHECK(parity.size() == ParityBytes(code, data.size()));
  switch (code) {
    case EccCode::kNone:
      return {};
    case EccCode::kSecded:
      return secded::CorrectInPlace(FastestPath(), data, parity);
    case EccCode::kReedSolomon:
      return rs::CorrectInPlace(data, parity);
  }
  FIRN_CHECK(false);
}

}  // namespace firn
