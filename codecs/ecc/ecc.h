// Error-correcting codes over runs: parity that a medium keeps behind the bytes, and repairs from it.
//
// Parity says what bytes may have been; only the record's checksums say that they are. A double or triple flip can
// "correct" to other bytes, so nothing that comes out of Correct may be used before its checksums were compared.
// Layouts and worked bytes: docs/formats/ecc.md. Threads: pure functions. Units: bytes. Bytes may be scattered
// anywhere. Source: SECDED is Hsiao's odd-weight-column code (IBM J. Res. Dev. 14, 1970); Reed-Solomon is systematic
// with a Cauchy matrix over GF(2^8) (ISA-L), decoded as erasures.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "codecs/encoded_block.h"
#include "codecs/types.h"

namespace firn {

// Persistent ids.
enum class EccCode : uint8_t {
  kNone = 0,
  // One check byte for each eight: corrects one flip in 72 bits, finds two.
  kSecded = 1,
  // Stripes of up to 16 shards of 4 KiB, two parity shards and a checksum a shard: any two of a stripe's shards may be
  // wrong, however much of them. A lost sector is two at most. Fewer bytes than 4 KiB are kept three times.
  kReedSolomon = 2,
};
std::string_view EccCodeName(EccCode code);  // "none", "secded", "rs"

// What is protected alike. Runs that cannot be done without rank above those that only refine.
enum class ProtectionClass : uint8_t {
  kMeta = 0,  // The record header, scales and minima, tokens kept exact.
  kBase = 1,  // p2, and codes that are not nested.
  kP4 = 2,
  kP8 = 3,
};
inline constexpr uint32_t kProtectionClasses = 4;
constexpr ProtectionClass ProtectionClassOf(RunKind kind) {
  switch (kind) {
    case RunKind::kMeta:
    case RunKind::kExact:
      return ProtectionClass::kMeta;
    case RunKind::kP4:
      return ProtectionClass::kP4;
    case RunKind::kP8:
      return ProtectionClass::kP8;
    case RunKind::kP2:
    case RunKind::kWhole:
      break;
  }
  return ProtectionClass::kBase;
}

// Which code each class has.
class EccPolicy {
 public:
  constexpr EccPolicy() = default;
  static constexpr EccPolicy Uniform(EccCode code) { return EccPolicy({code, code, code, code}); }
  // Header, metadata and the base strongly, finer planes by their checksums alone.
  static constexpr EccPolicy Graded(EccCode strong) {
    return EccPolicy({strong, strong, EccCode::kNone, EccCode::kNone});
  }
  constexpr EccPolicy With(ProtectionClass c, EccCode code) const {
    EccPolicy out = *this;
    out.codes_[static_cast<size_t>(c)] = code;
    return out;
  }
  constexpr EccCode Of(ProtectionClass c) const { return codes_[static_cast<size_t>(c)]; }
  constexpr EccCode OfRun(uint32_t run_index) const { return Of(ProtectionClassOf(RunKindOf(run_index))); }
  constexpr EccCode OfHeader() const { return Of(ProtectionClass::kMeta); }
  constexpr bool any() const { return *this != EccPolicy(); }
  constexpr bool operator==(const EccPolicy&) const = default;

  // Two bits a class, kMeta lowest. Persistent.
  constexpr uint8_t Packed() const {
    uint8_t bits = 0;
    for (uint32_t i = 0; i < kProtectionClasses; ++i)
      bits |= static_cast<uint8_t>(static_cast<uint8_t>(codes_[i]) << 2 * i);
    return bits;
  }
  // DataLoss for bits that name no code.
  static absl::StatusOr<EccPolicy> Unpack(uint8_t bits);
  // "none", "secded", "rs", or by class: "meta=rs,base=secded,p4=none,p8=none".
  std::string ToString() const;

 private:
  explicit constexpr EccPolicy(std::array<EccCode, kProtectionClasses> codes) : codes_(codes) {}
  std::array<EccCode, kProtectionClasses> codes_{};
};

// Bytes of parity for `data_bytes`; 0 for none of either.
uint64_t ParityBytes(EccCode code, uint64_t data_bytes);
// Fills exactly ParityBytes(code, data.size()) bytes; CHECKs their number.
void ComputeParity(EccCode code, const RunBytes& data, const MutableRunBytes& parity);

struct EccOutcome {
  uint64_t corrected = 0;      // Code words (SECDED) or shards (Reed-Solomon) that were changed, parity included.
  uint64_t uncorrectable = 0;  // Those that are known to be wrong and were left as they are.
  bool clean() const { return corrected == 0 && uncorrectable == 0; }
  EccOutcome& operator+=(const EccOutcome& other) {
    corrected += other.corrected;
    uncorrectable += other.uncorrectable;
    return *this;
  }
};
// Whether the data and its parity agree, word for word and shard for shard. One pass at about the speed of a copy.
bool ParityAgrees(EccCode code, const RunBytes& data, const RunBytes& parity);
// Corrects data and parity in place, as far as the code reaches. What it did is a guess until checksums agree.
EccOutcome CorrectInPlace(EccCode code, const MutableRunBytes& data, const MutableRunBytes& parity);

}  // namespace firn
