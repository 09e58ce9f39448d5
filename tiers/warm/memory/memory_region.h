// Byte-addressable memory that an arena is laid over: a memfd, a NUMA node, a DAX device, a file.
//
// A region reserves its whole address space when it is opened and makes the memory usable in steps, so that a large
// pool grows while the daemon already answers. Nothing in it survives the process: at opening its bytes mean nothing.
// Threads: Populate is called by one thread at a time; everything else is constant.
// Ownership: unmapped when destroyed.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace firn {

class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;

  // Makes [offset, offset + bytes) usable: the memory is there from then on, and touching it cannot fail. Both are
  // multiples of granule_bytes(). ResourceExhausted, naming what is missing, when the memory cannot be had; nothing
  // changes then.
  virtual absl::Status Populate(uint64_t offset, uint64_t bytes) = 0;

  uint8_t* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }                  // Reserved: how far Populate may go.
  uint64_t granule_bytes() const { return granule_bytes_; }  // A multiple of 64 KiB.
  int fd() const { return fd_; }                             // To be mapped by other processes; -1 where there is none.
  bool zeroed() const { return zeroed_; }                    // Populated memory reads as zeros.
  bool far() const { return far_; }                          // Better written past the caches.
  // "memfd, 2 MiB pages, NUMA node 0": for logs.
  virtual std::string Describe() const = 0;

 protected:
  MemoryRegion() = default;
  uint8_t* base_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t granule_bytes_ = 64 * 1024;
  int fd_ = -1;
  bool zeroed_ = true;
  bool far_ = false;
};

}  // namespace firn
