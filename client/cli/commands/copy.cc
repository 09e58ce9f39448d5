// copy: blocks from one daemon to another as they are stored, codes and not values.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/status.h"
#include "base/units.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/output.h"
#include "client/cli/support/selection.h"

namespace firn::cli {
namespace {

constexpr uint64_t kBytesAtOnce = uint64_t{64} << 20;  // Of values; in memory once, as codes.
constexpr size_t kKeysAtOnce = 256;

int64_t UnixMs() {
  using std::chrono::system_clock;
  return std::chrono::duration_cast<std::chrono::milliseconds>(system_clock::now().time_since_epoch()).count();
}

struct CopySummary {
  uint64_t copied = 0, existing = 0, missed = 0, failed = 0, bytes = 0;
  std::map<std::string, uint64_t> by_class;
  std::string first_failure;
  void Fail(const std::string& key, const absl::Status& status) {
    if (failed++ == 0) first_failure = key + ": " + Message(status);
  }
};

struct CopyCommand {
  BlockOptions blocks;
  std::string to, most;

  absl::StatusOr<int> Run(Context* context) const {
    firnkv::GetOptions get;
    get.representation = firnkv::Representation::kPacked;
    if (!most.empty() && !ParsePair(most, &get.most)) {
      return InvalidArgument("--most {}: allowed: int8, int4, int2, exact, or K and V apart, as in int8/int4", most);
    }
    FIRN_ASSIGN_OR_RETURN(firnkv::Client * from, context->Connect());
    FIRN_ASSIGN_OR_RETURN(Selection selection, blocks.Select(from));
    FIRN_ASSIGN_OR_RETURN(std::unique_ptr<firnkv::Client> target, context->ConnectTo(to));
    FIRN_ASSIGN_OR_RETURN(firnkv::Namespace there, target->RegisterNamespace(selection.ns.facts));
    const uint32_t shards = std::max(1u, selection.ns.facts.shards);
    const uint64_t key_bytes = std::max<uint64_t>(selection.ns.block_bytes, 1) * shards;
    const size_t at_once = std::clamp<uint64_t>(kBytesAtOnce / key_bytes, 1, kKeysAtOnce);
    Progress bar("copy", selection.keys.size(), !context->quiet && !context->json);
    CopySummary summary;
    std::span<const firnkv::BlockKey> keys = selection.keys;
    while (!keys.empty()) {
      auto batch = keys.first(std::min(keys.size(), at_once));
      keys = keys.subspan(batch.size());
      const uint64_t before = summary.bytes;
      for (uint32_t shard = 0; shard < shards; ++shard) {
        FIRN_RETURN_IF_ERROR(CopyBatch(from, target.get(), selection.ns, there, batch, shard, get, &summary));
      }
      bar.Add(batch.size(), summary.bytes - before);
    }
    Show(*context, summary, bar.seconds());
    return summary.missed + summary.failed == 0 ? kExitOk : kExitSome;
  }

  absl::Status CopyBatch(firnkv::Client* from, firnkv::Client* target, const firnkv::Namespace& ns,
                         const firnkv::Namespace& there, std::span<const firnkv::BlockKey> keys, uint32_t shard,
                         const firnkv::GetOptions& get, CopySummary* summary) const {
    std::vector<firnkv::GetItem> wanted;
    for (const firnkv::BlockKey& key : keys) wanted.push_back({.key = key, .shard = shard, .allocate = true});
    FIRN_ASSIGN_OR_RETURN(std::vector<firnkv::GetResult> got, from->Get(ns, wanted, get));
    // Blocks that end at the same time go together: the time to live is a whole call's.
    std::map<int64_t, std::vector<size_t>> by_expiry;
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i].status.ok()) {
        by_expiry[got[i].expires_unix_ms].push_back(i);
      } else if (absl::IsNotFound(got[i].status)) {
        ++summary->missed;
      } else {
        summary->Fail(KeyText(keys[i]), got[i].status);
      }
    }
    for (const auto& [expires_unix_ms, indices] : by_expiry) {
      firnkv::PutOptions put;
      if (expires_unix_ms != 0) {
        const int64_t left_ms = expires_unix_ms - UnixMs();
        if (left_ms <= 0) {
          summary->missed += indices.size();
          continue;
        }
        put.ttl_ms = static_cast<uint64_t>(left_ms);
      }
      std::vector<firnkv::PutItem> items;
      for (size_t i : indices) {
        firnkv::PutItem& item = items.emplace_back();
        item.key = keys[i];
        item.shard = shard;
        if (got[i].parent.has_value()) item.parent = firnkv::BlockKey(*got[i].parent);
        item.first_token = got[i].first_token;
        item.tokens = got[i].tokens;
        item.parts.k = std::span<const uint8_t>(got[i].payload);
        item.record_header = got[i].record_header;
        item.runs = got[i].runs;
      }
      FIRN_ASSIGN_OR_RETURN(std::vector<firnkv::PutResult> stored, target->Put(there, items, put));
      for (size_t i = 0; i < indices.size(); ++i) {
        if (!stored[i].status.ok()) {
          summary->Fail(KeyText(keys[indices[i]]), stored[i].status);
          continue;
        }
        ++(stored[i].stored ? summary->copied : summary->existing);
        if (!stored[i].stored) continue;
        ++summary->by_class[PairText(stored[i].stored_class)];
        summary->bytes += got[indices[i]].payload_bytes;
      }
    }
    return absl::OkStatus();
  }

  void Show(const Context& context, const CopySummary& summary, double seconds) const {
    if (summary.failed > 0) std::fprintf(stderr, "firn: %s\n", summary.first_failure.c_str());
    if (context.json) {
      Json classes = Json::object();
      for (const auto& [precision, count] : summary.by_class) classes[precision] = count;
      context.Print({{"copied", summary.copied},
                     {"existing", summary.existing},
                     {"missed", summary.missed},
                     {"failed", summary.failed},
                     {"bytes", summary.bytes},
                     {"seconds", seconds},
                     {"precision", classes}});
      return;
    }
    if (context.quiet) return;
    std::printf("%llu blocks copied, %s in %.3f s, %llu there already, %llu missed, %llu failed",
                static_cast<unsigned long long>(summary.copied), FormatBytes(summary.bytes).c_str(), seconds,
                static_cast<unsigned long long>(summary.existing), static_cast<unsigned long long>(summary.missed),
                static_cast<unsigned long long>(summary.failed));
    for (const auto& [precision, count] : summary.by_class) {
      std::printf("; %llu at %s", static_cast<unsigned long long>(count), precision.c_str());
    }
    std::printf("\n");
  }
};

}  // namespace

void AddCopy(CLI::App* app, Context* context, int* code) {
  auto command = std::make_shared<CopyCommand>();
  CLI::App* sub = app->add_subcommand("copy", "Copies blocks to another daemon as they are stored: codes, not values");
  command->blocks.AddTo(sub);
  sub->add_option("--to", command->to, "The other daemon: unix:/PATH or HOST:PORT")->required()->type_name("ADDRESS");
  sub->add_option("--most", command->most,
                  "Leave finer planes behind: int8, int4 or int2, or int8/int4 for K and V apart (default: all that is "
                  "there)")
      ->type_name("PRECISION");
  sub->callback([=] {
    auto result = command->Run(context);
    *code = result.ok() ? *result : context->Report(result.status());
  });
}

}  // namespace firn::cli
