// Describing blocks, and measured errors that only a persistent tier remembers.
//
// Errors are computed at encode and are in the record's header. A copy in memory has its header there; of one that is
// only in a persistent tier the header is read, a few KiB, for those who ask about this block and wait for the answer.
// A medium that hangs delays such an answer to its deadline, and takes the errors from it, nothing else.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/status.h"
#include "tiers/store/store_impl.h"

namespace firn {
namespace {

constexpr size_t kHeaderReadsAtOnce = 64;

bool Measured(const std::array<ClassErrors, 2>& errors) { return errors[0].any() || errors[1].any(); }

}  // namespace

// One call: its answers, and the headers that are still to be read for them.
struct Measuring {
  struct Want {
    size_t answer = 0, shard = 0;
    uint8_t tier = 0;
    CopyPtr copy;
    Identity identity;
  };
  std::vector<Want> wants;
  int64_t deadline_ns = 0;
  std::mutex mu;
  std::vector<Store::Description> answers;  // Guarded by mu, as all below.
  Store::DescribeDone done;
  size_t next = 0;  // In wants.
  size_t open = 0;  // Reads under way.
  bool over = false;
};

BlockInfo StoreImpl::InfoOf(EntryId id) const {
  const Entry& e = table_.entry(id);
  BlockInfo info;
  info.key = e.key;
  info.shard = e.shard;
  info.first_token = e.first_token;
  info.tokens = e.tokens;
  info.generation = e.generation;
  info.expires_unix_ms = e.expires_unix_ms;
  info.pins = e.pins;
  if (e.parent != kNoEntry) info.parent = table_.entry(e.parent).key;
  constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
  info.errors.fill({kUnknown, kUnknown, kUnknown, kUnknown});
  for (NodeId node = e.first_copy; node != kNoNode; node = table_.copy(node).next) {
    const HeldCopy& held = table_.copy(node);
    info.copies.push_back({held.tier, held.served, held.copy->StoredBytes()});
    auto header = HeaderInMemory(held.tier, held.copy, IdentityOfLocked(e));
    if (header != nullptr && !Measured(info.errors)) info.errors = ErrorsByClass(*header);
  }
  return info;
}

Store::Description StoreImpl::DescribeLocked(NamespaceId ns, const Digest& key) const {
  FIRN_RETURN_IF_ERROR(CheckNamespaceLocked(ns));
  std::vector<BlockInfo> out;
  for (uint32_t shard = 0; shard < namespaces_[ns].facts.shards; ++shard) {
    EntryId id = table_.Find({ns, static_cast<uint16_t>(shard), key});
    if (id != kNoEntry && !ExpiredLocked(table_.entry(id))) out.push_back(InfoOf(id));
  }
  if (out.empty()) return NotFound("miss: block {}", key.Hex());
  return out;
}

Store::Description StoreImpl::Describe(NamespaceId ns, const Digest& key) const {
  std::lock_guard lock(mu_);
  return DescribeLocked(ns, key);
}

std::vector<BlockInfo> StoreImpl::List(NamespaceId ns, const std::optional<Digest>& after, size_t limit,
                                       uint64_t bytes_max) const {
  std::lock_guard lock(mu_);
  std::vector<EntryId> chosen;
  if (!CheckNamespaceLocked(ns).ok()) return {};
  table_.ForEach([&](EntryId id) {
    const Entry& e = table_.entry(id);
    if (e.ns == ns && !ExpiredLocked(e) && (!after.has_value() || e.key > *after)) chosen.push_back(id);
  });
  auto before = [&](EntryId a, EntryId b) {
    const Entry &x = table_.entry(a), &y = table_.entry(b);
    return x.key != y.key ? x.key < y.key : x.shard < y.shard;
  };
  // All shards of the last key come along, so that `after` never skips one.
  size_t take = std::min(limit, chosen.size());
  std::partial_sort(chosen.begin(), chosen.begin() + static_cast<ptrdiff_t>(take), chosen.end(), before);
  std::vector<BlockInfo> out;
  uint64_t bytes = 0;
  for (size_t i = 0; i < take; ++i) {
    if (bytes >= bytes_max && table_.entry(chosen[i]).key != out.back().key) return out;
    out.push_back(InfoOf(chosen[i]));
    bytes += DescribedBytes(out.back());
  }
  if (take > 0) {
    for (size_t i = take; i < chosen.size(); ++i) {
      if (table_.entry(chosen[i]).key == table_.entry(chosen[take - 1]).key) out.push_back(InfoOf(chosen[i]));
    }
  }
  return out;
}

void StoreImpl::DescribeWithErrors(NamespaceId ns, const std::vector<Digest>& keys, int64_t deadline_ns,
                                   uint64_t bytes_max, DescribeDone done) {
  auto measuring = std::make_shared<Measuring>();
  measuring->deadline_ns = deadline_ns;
  measuring->done = std::move(done);
  uint64_t bytes = 0;
  for (const Digest& key : keys) {
    if (bytes >= bytes_max) {
      measuring->answers.push_back(
          ResourceExhausted("the answer has {} bytes, its limit; ask about this key in another call", bytes_max));
      continue;
    }
    std::lock_guard lock(mu_);
    Description answer = DescribeLocked(ns, key);
    for (size_t shard = 0; answer.ok() && shard < answer->size(); ++shard) bytes += DescribedBytes((*answer)[shard]);
    for (size_t shard = 0; answer.ok() && shard < answer->size(); ++shard) {
      if (Measured((*answer)[shard].errors)) continue;
      EntryId id = table_.Find({ns, (*answer)[shard].shard, key});
      for (const auto& copy : (*answer)[shard].copies) {
        if (!options_.tiers[copy.tier].tier->persistent()) continue;
        measuring->wants.push_back({measuring->answers.size(), shard, copy.tier, table_.FindCopy(id, copy.tier)->copy,
                                    IdentityOfLocked(table_.entry(id))});
        break;
      }
    }
    measuring->answers.push_back(std::move(answer));
  }
  if (!measuring->wants.empty()) {
    std::lock_guard lock(mu_);
    measuring_.push_back(measuring);
  }
  MeasureOn(measuring);
}

void StoreImpl::MeasureOn(const std::shared_ptr<Measuring>& measuring) {
  while (true) {
    const Measuring::Want* want = nullptr;
    {
      std::lock_guard lock(measuring->mu);
      if (measuring->over || (measuring->open > 0 && measuring->next == measuring->wants.size())) return;
      if (measuring->next < measuring->wants.size()) {
        if (measuring->open == kHeaderReadsAtOnce) return;
        want = &measuring->wants[measuring->next++];
        ++measuring->open;
      }
    }
    if (want == nullptr) return EndMeasuring(measuring);
    auto take = [this, measuring, want](absl::StatusOr<EncodedBlock> block) {
      {
        std::lock_guard lock(measuring->mu);
        --measuring->open;
        if (!measuring->over && block.ok()) {
          (*measuring->answers[want->answer])[want->shard].errors = ErrorsByClass(*block->header);
        }
      }
      // Through the executor, so that many reads that are answered at once do not become a deep stack.
      options_.executor->Post([this, measuring] { MeasureOn(measuring); });
    };
    options_.tiers[want->tier].tier->Read(want->copy, want->identity, RunMask(), std::move(take));
  }
}

void StoreImpl::EndMeasuring(const std::shared_ptr<Measuring>& measuring) {
  std::vector<Description> answers;
  DescribeDone done;
  {
    std::lock_guard lock(measuring->mu);
    if (std::exchange(measuring->over, true)) return;
    answers = std::move(measuring->answers);
    done = std::move(measuring->done);
  }
  {
    std::lock_guard lock(mu_);
    std::erase(measuring_, measuring);
  }
  done(std::move(answers));
}

void StoreImpl::EndLateMeasuring() {
  std::vector<std::shared_ptr<Measuring>> late;
  {
    std::lock_guard lock(mu_);
    for (const auto& measuring : measuring_) {
      if (measuring->deadline_ns <= options_.clock->NowNs()) late.push_back(measuring);
    }
  }
  for (const auto& measuring : late) EndMeasuring(measuring);
}

}  // namespace firn
