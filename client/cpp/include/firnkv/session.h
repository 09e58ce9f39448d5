// A session owns pins and half-made puts: when it ends, however it ends, the daemon frees them.
//
// Threads: safe from any thread. Ownership: keeps its client's connection alive; ends with the object. Errors: a
// session that was lost (the daemon stopped, the connection broke) does not come back: alive() turns false, and calls
// that name it answer FAILED_PRECONDITION.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "firnkv/blocks.h"
#include "firnkv/client.h"
#include "firnkv/device.h"

namespace firnkv {

// Space reserved for one block, to be filled and committed.
struct Lease {
  absl::Status status = {};  // Not OK: no lease; ALREADY_EXISTS where an equal or finer block is there.
  uint64_t lease = 0;
  uint64_t payload_bytes = 0;
};

class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool alive() const;
  const std::string& id() const;

  // Reserves space for blocks, whose `parts` are not looked at yet (their layouts are). `wait_ms`: how long to wait for
  // room.
  absl::StatusOr<std::vector<Lease>> BeginPut(const Namespace& ns, std::span<const PutItem> items,
                                              const PutOptions& options, uint64_t wait_ms);
  // The same for blocks that FillFromDevice fills, and nothing else: they take no host memory of the daemon's.
  absl::StatusOr<std::vector<Lease>> BeginPutFromDevice(const Namespace& ns, std::span<const PutItem> items,
                                                        const PutOptions& options, uint64_t wait_ms);
  // Fills leases over the inline path; one status a lease.
  absl::StatusOr<std::vector<absl::Status>> Fill(const Namespace& ns, std::span<const uint64_t> leases,
                                                 std::span<const SourceParts> parts, const PutOptions& options = {});
  // Fills leases from this process's device memory; one status a lease. The values must stay until it returns.
  absl::StatusOr<std::vector<absl::Status>> FillFromDevice(std::span<const uint64_t> leases,
                                                           std::span<const DeviceRows> rows,
                                                           const CallOptions& options = {});
  absl::StatusOr<std::vector<PutResult>> CommitPut(std::span<const uint64_t> leases, const CallOptions& options = {});
  absl::StatusOr<std::vector<absl::Status>> AbortPut(std::span<const uint64_t> leases, const CallOptions& options = {});

  class Impl;

 private:
  friend class Client;
  absl::StatusOr<std::vector<Lease>> Begin(const Namespace& ns, std::span<const PutItem> items,
                                           const PutOptions& options, uint64_t wait_ms, bool from_device);
  explicit Session(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace firnkv
