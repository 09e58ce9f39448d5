// A service over a real store and a real gRPC server on a Unix socket, in this process; and helpers that speak the API.
//
// The store has two tiers of memory: "hot", exact, and "warm", INT8 down to INT4. Threads: a ticker of its own.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/core/service_core.h"
#include "daemon/rpc/grpc_server.h"
#include "daemon/runtime/asio_executor.h"
#include "daemon/tests/raw_client_test_util.h"
#include "firn/v1/admin.pb.h"
#include "firn/v1/kv.pb.h"

namespace firn {

struct HarnessOptions {
  uint64_t hot_bytes = 64 * kMiB;
  uint64_t warm_bytes = 64 * kMiB;
  LimitSettings limits;
  bool ready = true;  // False: the store is not handed over yet.
};

class ServiceHarness {
 public:
  explicit ServiceHarness(HarnessOptions options = {});
  ~ServiceHarness();

  void HandOver() { core->SetStore(store.get()); }
  // A listener for another tenant, without the Admin service. Returns its address.
  std::string AddListener(const std::string& tenant);

  std::string dir;
  std::unique_ptr<AsioExecutor> executor;
  std::unique_ptr<ServiceCore> core;
  std::unique_ptr<Store> store;
  std::vector<std::unique_ptr<GrpcListener>> listeners;
  std::unique_ptr<RawClient> client;
  const std::string& address() const { return listeners[0]->address(); }

 private:
  std::atomic<bool> stop_{false};
  std::thread ticker_;
};

v1::NamespaceFacts FactsOf(uint32_t layers, uint32_t heads, uint32_t k_width, uint32_t v_width, uint32_t block_tokens,
                           v1::DType dtype = v1::DTYPE_FP16);

// One namespace as a client sees it.
class ApiClient {
 public:
  ApiClient(RawClient* raw, const v1::NamespaceFacts& facts);

  // Reproducible values, small and finite, of a block of `tokens` tokens; scales included.
  std::string Payload(uint64_t seed, uint32_t tokens) const;
  uint64_t PayloadBytes(uint32_t tokens) const;
  v1::PutBlock Block(const std::string& opaque_key, uint32_t tokens) const;

  // Puts one block, its payload in chunks of `chunk_bytes`.
  v1::PutResponse Put(const v1::PutBlock& block, const std::string& payload, size_t chunk_bytes = 1 << 20);
  v1::PutResponse Put(const std::string& opaque_key, uint64_t seed, uint32_t tokens);
  // Puts blocks on one stream; one answer each, in their order.
  std::vector<v1::PutResponse> PutAll(const std::vector<std::pair<v1::PutBlock, std::string>>& blocks);

  struct Got {
    absl::Status status;
    v1::GetBlock found;
    std::string payload;
    size_t messages = 0;
  };
  v1::GetRequest GetRequestOf(const std::vector<std::string>& opaque_keys) const;
  std::vector<Got> Get(const v1::GetRequest& request);
  Got Get(const std::string& opaque_key);
  // Collects one answer for each of `blocks` blocks from an open stream.
  static std::vector<Got> ReadAnswers(RawStream* stream, size_t blocks);

  bool Exists(const std::string& opaque_key);
  absl::Status Delete(const std::string& opaque_key);
  v1::StatsResponse Stats();

  RawClient* const raw;
  v1::NamespaceInfo info;
  const std::string& fingerprint() const { return info.namespace_fingerprint(); }
};

v1::BlockKey OpaqueKey(const std::string& key);
// Waits until `holds()`, at most `limit_ms`; returns whether it came to hold.
bool Eventually(const std::function<bool()>& holds, int64_t limit_ms = 10'000);

}  // namespace firn
