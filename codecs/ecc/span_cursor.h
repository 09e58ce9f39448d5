// Walks the bytes of a run front to back, in place where they lie together and by copies where they do not.
//
// Threads: one. Borrows the run, which must outlive it; copying a cursor remembers a place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/check.h"
#include "codecs/encoded_block.h"

namespace firn::ecc {

template <typename Byte>
class SpanCursor {
 public:
  explicit SpanCursor(const Scattered<Byte>& run) : spans_(&run.spans()) { Settle(); }

  // What follows in the same span; empty at the end of the run alone.
  std::span<Byte> Rest() const {
    return piece_ == spans_->size() ? std::span<Byte>() : (*spans_)[piece_].subspan(offset_);
  }
  void Advance(size_t bytes) {
    while (bytes > 0) {
      const size_t step = std::min(bytes, Rest().size());
      FIRN_CHECK(step > 0);
      bytes -= step;
      offset_ += step;
      Settle();
    }
  }
  // Copies the next `bytes`, or what is left, and says how many.
  size_t Read(size_t bytes, uint8_t* target) {
    return Each(bytes, [&](std::span<Byte> piece, size_t at) { std::memcpy(target + at, piece.data(), piece.size()); });
  }
  size_t Write(const uint8_t* source, size_t bytes) requires(!std::is_const_v<Byte>) {
    return Each(bytes, [&](std::span<Byte> piece, size_t at) { std::memcpy(piece.data(), source + at, piece.size()); });
  }
  // The next `bytes`, which must exist, where they are or else copied to `scratch`.
  const uint8_t* View(size_t bytes, uint8_t* scratch) {
    const std::span<Byte> rest = Rest();
    if (rest.size() >= bytes) {
      Advance(bytes);
      return rest.data();
    }
    FIRN_CHECK(Read(bytes, scratch) == bytes);
    return scratch;
  }

 private:
  template <typename Visit>
  size_t Each(size_t bytes, Visit visit) {
    size_t done = 0;
    while (done < bytes) {
      const std::span<Byte> rest = Rest();
      if (rest.empty()) break;
      const size_t step = std::min(bytes - done, rest.size());
      visit(rest.first(step), done);
      done += step;
      Advance(step);
    }
    return done;
  }
  void Settle() {
    while (piece_ < spans_->size() && offset_ == (*spans_)[piece_].size()) ++piece_, offset_ = 0;
  }

  const std::remove_reference_t<decltype(std::declval<const Scattered<Byte>&>().spans())>* spans_;
  size_t piece_ = 0;
  size_t offset_ = 0;
};

}  // namespace firn::ecc
