// Sessions of clients: who holds pins, and puts that were begun and not yet committed (leases).
//
// A session is named by 16 random bytes, so that knowing of a session is owning it; a token of another tenant is
// unknown. Threads: any. Ownership: closing a session drops its leases (which aborts their puts) and closes the store's
// session. A lease that is being filled is taken out of the table; putting it back into a closed session aborts it.
// Errors: NotFound for unknown tokens and leases, ResourceExhausted at the limits.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "daemon/payload/begun_put.h"
#include "tiers/store/store.h"

namespace firn {

// A put begun for later.
struct Lease {
  BegunPut begun;
  int64_t touched_ns = 0;
};

class ClientSession {
 public:
  ClientSession(SessionId id, std::string tenant, std::string token, uint32_t leases_max)
      : id_(id), tenant_(std::move(tenant)), token_(std::move(token)), leases_max_(leases_max) {}

  SessionId id() const { return id_; }
  const std::string& tenant() const { return tenant_; }
  const std::string& token() const { return token_; }

  absl::StatusOr<uint64_t> AddLease(Lease lease, int64_t now_ns);
  absl::StatusOr<Lease> TakeLease(uint64_t lease);
  void PutBack(uint64_t number, Lease lease, int64_t now_ns);
  // Takes leases that nothing has happened to since `since_ns`.
  std::vector<Lease> TakeIdle(int64_t since_ns);
  std::map<uint64_t, Lease> Close();
  size_t leases() const;

 private:
  const SessionId id_;
  const std::string tenant_, token_;
  const uint32_t leases_max_;
  mutable std::mutex mu_;
  std::map<uint64_t, Lease> leases_;  // Guarded by mu_.
  size_t taken_ = 0;                  // Guarded by mu_. Leases being filled now.
  uint64_t next_lease_ = 1;           // Guarded by mu_.
  bool closed_ = false;               // Guarded by mu_.
};

class SessionTable {
 public:
  SessionTable(uint32_t sessions_max, uint32_t leases_max) : sessions_max_(sessions_max), leases_max_(leases_max) {}

  absl::StatusOr<std::shared_ptr<ClientSession>> Open(Store* store, const std::string& tenant);
  void Close(Store* store, const std::shared_ptr<ClientSession>& session);
  absl::StatusOr<std::shared_ptr<ClientSession>> Find(const std::string& token, const std::string& tenant) const;
  // Aborts leases that have been idle for longer than `idle_ms`; returns how many.
  size_t DropIdleLeases(int64_t now_ns, int64_t idle_ms);
  size_t size() const;

 private:
  const uint32_t sessions_max_, leases_max_;
  mutable std::mutex mu_;
  std::map<std::string, std::shared_ptr<ClientSession>, std::less<>> sessions_;  // By token. Guarded by mu_.
};

}  // namespace firn
