// The load of `firn chaos`: clients that put, get, look up, delete and flush blocks whose values follow from their
// number, and judge every answer.
//
// Threads: a Worker runs on one thread; Tally, Findings and Gate are for any. Errors: what must not be is a finding;
// a daemon that is not there, or has no room, is none.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "client/cli/chaos/ledger.h"
#include "client/trial/known_blocks.h"
#include "firnkv/client.h"

namespace firn::cli {

inline constexpr uint64_t kBlocksAClient = 160;

struct Tally {
  std::atomic<uint64_t> operations{0}, puts{0}, durable_puts{0}, gets{0}, hits{0}, misses{0}, deletes{0}, lookups{0},
      flushes{0};
  std::atomic<uint64_t> full{0};        // RESOURCE_EXHAUSTED.
  std::atomic<uint64_t> refused{0};     // DATA_LOSS, after a fault that loses copies.
  std::atomic<uint64_t> unanswered{0};  // No daemon there, or too late.
  std::atomic<uint64_t> wrong{0}, lost{0}, came_back{0}, lost_to_damage{0};
  std::atomic<uint64_t> failed{0};  // Answers that no fault excuses.
};

// What must not be, the first few in words. Threads: any.
class Findings {
 public:
  void Add(std::string finding);
  uint64_t count() const;
  std::vector<std::string> texts() const;

 private:
  mutable std::mutex mu_;
  uint64_t count_ = 0;  // Guarded by mu_, as all below.
  std::vector<std::string> texts_;
};

// Holds the clients still between two operations. Threads: any go through; one pauses.
class Gate {
 public:
  void Enter();
  void Leave();
  void Pause();  // Returns when nobody is inside.
  void Resume();

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  int inside_ = 0;  // Guarded by mu_, as all below.
  bool paused_ = false;
};

struct LoadState {
  explicit LoadState(uint64_t blocks) : ledger(blocks) {}
  Ledger ledger;
  Tally tally;
  Findings findings;
  Gate gate;
  std::atomic<bool> stop{false};
};

// A client's connection and its namespaces, one a model; and single blocks over them.
class BlockClient {
 public:
  BlockClient(std::unique_ptr<firnkv::Client> client, LoadState* state);

  void Put(uint64_t number, bool durable);
  // `owned`: nobody else writes the block meanwhile, so that what was promised of it can be judged.
  void Get(uint64_t number, bool owned);
  void Delete(uint64_t number);
  void Lookup(uint64_t number);
  void Flush(uint64_t first, uint64_t count);
  firnkv::Client& client() { return *client_; }

 private:
  // The namespace of a block, registered where this was not done yet; nullptr when the daemon is not there.
  const firnkv::Namespace* SpaceOf(uint64_t number);
  // Counts what is not OK; a finding where nothing excuses it.
  void Answered(const char* what, uint64_t number, const absl::Status& status);

  const std::unique_ptr<firnkv::Client> client_;
  LoadState* const state_;
  std::vector<std::optional<firnkv::Namespace>> spaces_;
};

// Runs until `state->stop`, on blocks [index * kBlocksAClient, ...), and reads those of `clients` clients.
void RunClient(BlockClient client, LoadState* state, uint32_t index, uint32_t clients, uint64_t seed);

}  // namespace firn::cli
