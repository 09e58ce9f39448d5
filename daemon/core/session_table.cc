#include "daemon/core/session_table.h"

#include <sys/random.h>

#include <cerrno>
#include <utility>

#include "base/status.h"

namespace firn {
namespace {

constexpr size_t kTokenBytes = 16;

absl::StatusOr<std::string> RandomToken() {
  std::string token(kTokenBytes, '\0');
  for (size_t got = 0; got < kTokenBytes;) {
    ssize_t more = ::getrandom(token.data() + got, kTokenBytes - got, 0);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) return ErrnoStatus(errno, "getrandom for a session's token");
    got += static_cast<size_t>(more);
  }
  return token;
}

}  // namespace

absl::StatusOr<uint64_t> ClientSession::AddLease(Lease lease, int64_t now_ns) {
  std::lock_guard lock(mu_);
  if (closed_) return NotFound("the session has ended");
  if (leases_.size() + taken_ >= leases_max_) {
    return ResourceExhausted("the session has {} leases; the limit is {}", leases_.size() + taken_, leases_max_);
  }
  lease.touched_ns = now_ns;
  uint64_t number = next_lease_++;
  leases_.emplace(number, std::move(lease));
  return number;
}

absl::StatusOr<Lease> ClientSession::TakeLease(uint64_t number) {
  std::lock_guard lock(mu_);
  auto found = leases_.find(number);
  if (found == leases_.end()) return NotFound("lease {} is unknown, in use, ended or expired", number);
  Lease lease = std::move(found->second);
  leases_.erase(found);
  ++taken_;
  return lease;
}

void ClientSession::PutBack(uint64_t number, Lease lease, int64_t now_ns) {
  std::lock_guard lock(mu_);
  --taken_;
  if (closed_ || lease.begun.put == nullptr) return;
  lease.touched_ns = now_ns;
  leases_.emplace(number, std::move(lease));
}

std::vector<Lease> ClientSession::TakeIdle(int64_t since_ns) {
  std::vector<Lease> out;
  std::lock_guard lock(mu_);
  for (auto it = leases_.begin(); it != leases_.end();) {
    if (it->second.touched_ns < since_ns) {
      out.push_back(std::move(it->second));
      it = leases_.erase(it);
    } else {
      ++it;
    }
  }
  return out;
}

std::map<uint64_t, Lease> ClientSession::Close() {
  std::lock_guard lock(mu_);
  closed_ = true;
  return std::exchange(leases_, {});
}

size_t ClientSession::leases() const {
  std::lock_guard lock(mu_);
  return leases_.size() + taken_;
}

absl::StatusOr<std::shared_ptr<ClientSession>> SessionTable::Open(Store* store, const std::string& tenant) {
  FIRN_ASSIGN_OR_RETURN(std::string token, RandomToken());
  std::lock_guard lock(mu_);
  if (sessions_.size() >= sessions_max_) {
    return ResourceExhausted("{} sessions are open; the limit is {}", sessions_.size(), sessions_max_);
  }
  auto session = std::make_shared<ClientSession>(store->OpenSession(tenant), tenant, token, leases_max_);
  sessions_.emplace(token, session);
  return session;
}

void SessionTable::Close(Store* store, const std::shared_ptr<ClientSession>& session) {
  {
    std::lock_guard lock(mu_);
    if (sessions_.erase(session->token()) == 0) return;
  }
  session->Close();  // What it returns is dropped here, which aborts the puts.
  store->CloseSession(session->id());
}

absl::StatusOr<std::shared_ptr<ClientSession>> SessionTable::Find(const std::string& token,
                                                                  const std::string& tenant) const {
  if (token.size() != kTokenBytes) {
    return InvalidArgument("session has {} bytes; a session's token has {}", token.size(), kTokenBytes);
  }
  std::lock_guard lock(mu_);
  auto found = sessions_.find(token);
  if (found == sessions_.end() || found->second->tenant() != tenant) {
    return FailedPrecondition("the session is unknown or has ended");
  }
  return found->second;
}

size_t SessionTable::DropIdleLeases(int64_t now_ns, int64_t idle_ms) {
  std::vector<std::shared_ptr<ClientSession>> all;
  {
    std::lock_guard lock(mu_);
    for (const auto& [token, session] : sessions_) all.push_back(session);
  }
  size_t dropped = 0;
  for (const auto& session : all) dropped += session->TakeIdle(now_ns - idle_ms * 1'000'000).size();
  return dropped;
}

size_t SessionTable::size() const {
  std::lock_guard lock(mu_);
  return sessions_.size();
}

}  // namespace firn
