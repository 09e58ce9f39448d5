// Encoded blocks in memory: a shared header and the bytes of some of its runs, wherever they lie.
//
// A run may be scattered over several spans (arena pages). EncodedBlock is immutable and keeps its bytes alive through
// `owner`; copying it is cheap. Threads: any.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/bytes.h"
#include "codecs/record.h"
#include "codecs/types.h"

namespace firn {

// The bytes of one run, in order, over one or more spans.
template <typename Byte>
class Scattered {
 public:
  Scattered() = default;
  explicit Scattered(std::span<Byte> whole) {
    if (!whole.empty()) spans_.push_back(whole);
  }
  void Append(std::span<Byte> piece) {
    if (!piece.empty()) spans_.push_back(piece);
  }
  const auto& spans() const { return spans_; }
  uint64_t size() const {
    uint64_t total = 0;
    for (const auto& piece : spans_) total += piece.size();
    return total;
  }
  // Bytes [offset, offset + length); CHECKs that they exist.
  Scattered Slice(uint64_t offset, uint64_t length) const {
    Scattered out;
    for (const auto& piece : spans_) {
      if (length == 0) break;
      if (offset >= piece.size()) {
        offset -= piece.size();
        continue;
      }
      uint64_t take = std::min<uint64_t>(piece.size() - offset, length);
      out.spans_.push_back(piece.subspan(offset, take));
      offset = 0;
      length -= take;
    }
    FIRN_CHECK(length == 0);
    return out;
  }
  operator Scattered<const Byte>() const requires(!std::is_const_v<Byte>) {
    Scattered<const Byte> out;
    for (const auto& piece : spans_) out.Append(piece);
    return out;
  }

 private:
  template <typename Other>
  friend class Scattered;
  absl::InlinedVector<std::span<Byte>, 1> spans_;
};

using RunBytes = Scattered<const uint8_t>;
using MutableRunBytes = Scattered<uint8_t>;

// Copies all of `source` into the front of `target`; CHECKs that it fits.
void CopyScattered(const RunBytes& source, const MutableRunBytes& target);

// Tells namespaces apart cheaply; never 0.
inline uint64_t NamespaceTag(const Digest& namespace_fingerprint) { return namespace_fingerprint.Prefix() | 1; }

// How long each run of a record is; 0 for absent runs.
struct RecordLayout {
  RunMask present;
  std::array<uint64_t, kRunIds> run_bytes{};
  // Two things a medium may know ahead, 0 where unknown. NamespaceTag of whoever will write: memory that another
  // namespace used before, and with 0 any used memory, is zeroed before it is handed out. And the block's layers, by
  // which the header's length is known.
  uint64_t namespace_tag = 0;
  uint32_t layers = 0;
  // Of records whose heads differ in precision: which parts. And what the header's maps add to it.
  std::array<bool, 2> mixed{};
  uint64_t map_bytes = 0;
  uint64_t TotalBytes() const {
    uint64_t total = 0;
    for (uint64_t bytes : run_bytes) total += bytes;
    return total;
  }
};

// The layout of a record with this header and these of its encoded runs; only their lengths need to be set.
RecordLayout LayoutOf(const RecordHeader& header, RunMask keep = RunMask::All());

// No header with these runs and checks by LayersPerCheck serializes to more; with known layers it has just these bytes.
uint64_t HeaderBytesBound(const RecordLayout& layout);
// InvalidArgument where it would be longer than kRecordHeaderBytesMax: such a record cannot be written.
absl::Status CheckHeaderFits(const RecordLayout& layout);

using MutableRuns = std::array<MutableRunBytes, kRunIds>;

struct EncodedBlock {
  std::shared_ptr<const RecordHeader> header;
  RunMask present;                     // Runs whose bytes are here.
  std::array<RunBytes, kRunIds> runs;  // Empty outside `present`.
  std::shared_ptr<const void> owner;   // Keeps the bytes alive.
  // The medium gave other bytes than it was given, and error correction worked on them: the copy wants writing anew.
  bool corrected = false;

  // A view of the same block with fewer runs.
  EncodedBlock Narrowed(RunMask keep) const;
  RecordLayout Layout(RunMask keep) const;
};

// Fills the `checks` of the runs in `mask` of `header` from their bytes; `header->runs[i].bytes` must be set.
void ComputeChecks(RecordHeader* header, RunMask mask, const std::array<RunBytes, kRunIds>& runs);
// The same; `visit` sees every byte too, run by run and front to back, in stretches that are in the cache when it is
// called and when they are summed.
void ComputeChecks(RecordHeader* header, RunMask mask, const std::array<RunBytes, kRunIds>& runs,
                   absl::FunctionRef<void(uint32_t run_index, ByteSpan stretch)> visit);

// The runs of `block` whose bytes agree with every checksum of the header. Costs one pass over the bytes.
RunMask IntactRuns(const EncodedBlock& block);
// The same of one run, whose bytes may be from anywhere.
bool IsIntactRun(const std::shared_ptr<const RecordHeader>& header, uint32_t run_index, const RunBytes& run);

}  // namespace firn
