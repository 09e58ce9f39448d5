// Contiguous views of stretches of a run that may lie over several spans.
//
// A cursor gives the bytes in place where they lie in one span, and through scratch of its own where they do not.
// Stretches are best asked for in ascending order. Not thread-safe; the run must outlive the cursor, which borrows it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "codecs/encoded_block.h"

namespace firn {

// Remembers the piece of the last stretch, so that walking a run costs nothing a step.
template <typename Byte>
class PieceFinder {
 public:
  explicit PieceFinder(const Scattered<Byte>& run) : run_(&run) {}

  // The piece that holds `offset`, which is inside the run, and the offset within it.
  std::pair<size_t, uint64_t> Find(uint64_t offset) {
    if (offset < start_) piece_ = 0, start_ = 0;
    while (true) {
      FIRN_CHECK(piece_ < run_->spans().size());
      uint64_t size = run_->spans()[piece_].size();
      if (offset - start_ < size) return {piece_, offset - start_};
      start_ += size;
      ++piece_;
    }
  }
  const Scattered<Byte>& run() const { return *run_; }

 private:
  const Scattered<Byte>* run_;
  size_t piece_ = 0;
  uint64_t start_ = 0;  // Of piece_, in the run.
};

class ReadCursor {
 public:
  explicit ReadCursor(const RunBytes& run) : finder_(run), bytes_(run.size()) {}

  uint64_t bytes() const { return bytes_; }

  // Valid until the next call. Null where `bytes` is 0.
  const uint8_t* Read(uint64_t offset, uint64_t bytes) {
    if (bytes == 0) return nullptr;
    auto [piece, within] = finder_.Find(offset);
    const auto& spans = finder_.run().spans();
    if (within + bytes <= spans[piece].size()) return spans[piece].data() + within;
    scratch_.resize(bytes);
    for (uint64_t done = 0; done < bytes; ++piece, within = 0) {
      FIRN_CHECK(piece < spans.size());
      uint64_t take = std::min<uint64_t>(bytes - done, spans[piece].size() - within);
      std::memcpy(scratch_.data() + done, spans[piece].data() + within, take);
      done += take;
    }
    return scratch_.data();
  }

 private:
  PieceFinder<const uint8_t> finder_;
  uint64_t bytes_;
  std::vector<uint8_t> scratch_;
};

class WriteCursor {
 public:
  explicit WriteCursor(const MutableRunBytes& run) : finder_(run) {}

  // Where to write `bytes` bytes that belong at `offset`; Commit brings them there. Null where `bytes` is 0.
  uint8_t* Begin(uint64_t offset, uint64_t bytes) {
    pending_ = 0;
    if (bytes == 0) return nullptr;
    auto [piece, within] = finder_.Find(offset);
    const auto& spans = finder_.run().spans();
    if (within + bytes <= spans[piece].size()) return spans[piece].data() + within;
    if (scratch_.size() < bytes) scratch_.resize(bytes);
    piece_ = piece, within_ = within, pending_ = bytes;
    return scratch_.data();
  }
  void Commit() {
    const auto& spans = finder_.run().spans();
    for (uint64_t done = 0; done < pending_; ++piece_, within_ = 0) {
      FIRN_CHECK(piece_ < spans.size());
      uint64_t take = std::min<uint64_t>(pending_ - done, spans[piece_].size() - within_);
      std::memcpy(spans[piece_].data() + within_, scratch_.data() + done, take);
      done += take;
    }
    pending_ = 0;
  }

 private:
  PieceFinder<uint8_t> finder_;
  std::vector<uint8_t> scratch_;
  size_t piece_ = 0;
  uint64_t within_ = 0, pending_ = 0;
};

}  // namespace firn
