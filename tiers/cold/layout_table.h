// Run lengths and extent shapes of records, each different one kept once: most records of a namespace share theirs.
//
// Threads: all calls are safe from any thread. Ownership: a LayoutRef is a reference; a layout goes with its last one,
// also after the table.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "tiers/cold/log/extent_format.h"

namespace firn {

struct ColdLayout {
  RunLengths run_bytes{};
  EccPolicy ecc;
  uint32_t header_bytes = 0;                             // Of the serialized record header.
  std::array<ExtentShape, kRecordExtentsMax> extents{};  // The one with the record header first.
  bool operator==(const ColdLayout&) const = default;
  ExtentContents ContentsOf(size_t extent) const {
    return {extents[extent], run_bytes, extent == 0 ? header_bytes : 0, ecc};
  }
  uint64_t ExtentBytes(size_t extent) const { return ContentsOf(extent).End(); }

  template <typename H>
  friend H AbslHashValue(H h, const ColdLayout& layout) {
    for (const ExtentShape& shape : layout.extents) h = H::combine(std::move(h), shape.runs.bits(), shape.runs_at);
    return H::combine(std::move(h), layout.run_bytes, layout.header_bytes, layout.ecc.Packed());
  }
};

class LayoutRef {
 public:
  LayoutRef() = default;
  LayoutRef(LayoutRef&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
  LayoutRef& operator=(LayoutRef&& other) noexcept {
    std::swap(entry_, other.entry_);
    return *this;
  }
  ~LayoutRef();
  const ColdLayout& operator*() const;
  const ColdLayout* operator->() const { return &**this; }
  // Counts bytes of forgotten copies with the table that the layout is of; also after the table has gone.
  void AddHeldBytes(int64_t bytes) const;

 private:
  friend class LayoutTable;
  struct Entry;
  struct State;
  explicit LayoutRef(Entry* entry) : entry_(entry) {}
  Entry* entry_ = nullptr;
};

class LayoutTable {
 public:
  LayoutTable();
  ~LayoutTable();
  LayoutRef Intern(const ColdLayout& layout);
  size_t size() const;
  uint64_t held_bytes() const;

 private:
  std::shared_ptr<LayoutRef::State> state_;
};

}  // namespace firn
