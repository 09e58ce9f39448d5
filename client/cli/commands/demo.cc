// demo: the store's main job on real keys and values, in two halves around a restart of the daemon (deploy/demo.sh runs
// both).
//
// Every step moves the blocks, fetches all of them, checks where they came from and how precise they were, and compares
// with the file. A step that does not do what it says ends the demonstration with an error.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <map>

#include "base/status.h"
#include "base/units.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/output.h"
#include "client/cli/support/transfer.h"
#include "firnkv/watch.h"

namespace firn::cli {
namespace {

using firnkv::Precision;

constexpr uint32_t kTokensWanted = 1024;

// A short file is stored as several sequences: the same values under other keys, as other prompts would have.
struct Sequence {
  FileOptions options;
  std::vector<FileBlock> blocks;
};

class Demo {
 public:
  Demo(Context* context, FileOptions file, std::string state_path)
      : context_(context), file_(std::move(file)), state_path_(std::move(state_path)) {}

  absl::StatusOr<int> BeforeRestart() {
    FIRN_RETURN_IF_ERROR(Open());
    FIRN_RETURN_IF_ERROR(Store());
    FIRN_RETURN_IF_ERROR(Step("put", tier_names_[0], Precision::kExact));
    FIRN_RETURN_IF_ERROR(Demote(1));
    FIRN_RETURN_IF_ERROR(Step("demoted", tier_names_[1], Precision::kInt8));
    FIRN_RETURN_IF_ERROR(Degrade(1, Precision::kInt4));
    FIRN_RETURN_IF_ERROR(Step("degraded in place", tier_names_[1], Precision::kInt4));
    FIRN_RETURN_IF_ERROR(Demote(2));
    FIRN_RETURN_IF_ERROR(Step("demoted", tier_names_[2], Precision::kInt4));
    FIRN_RETURN_IF_ERROR(client_->Flush(ns_));
    FIRN_RETURN_IF_ERROR(TellEvents());
    return Save();
  }

  absl::StatusOr<int> AfterRestart() {
    FIRN_RETURN_IF_ERROR(Open());
    FIRN_RETURN_IF_ERROR(Load());
    FIRN_RETURN_IF_ERROR(Step("after a restart", tier_names_[2], Precision::kInt4));
    FIRN_RETURN_IF_ERROR(SameErrorsAsBefore());
    FIRN_RETURN_IF_ERROR(Degrade(2, Precision::kInt2));
    FIRN_RETURN_IF_ERROR(Step("degraded", tier_names_[2], Precision::kInt2));
    FIRN_RETURN_IF_ERROR(TellEvents());
    FIRN_ASSIGN_OR_RETURN(firnkv::VerifyReport report, client_->Verify());
    for (const std::string& finding : report.findings) std::fprintf(stderr, "firn: %s\n", finding.c_str());
    Summary(report.consistent);
    return report.consistent ? kExitOk : kExitInconsistent;
  }

 private:
  absl::Status Open() {
    FIRN_ASSIGN_OR_RETURN(kv_, file_.Open());
    FIRN_ASSIGN_OR_RETURN(client_, context_->Connect());
    FIRN_ASSIGN_OR_RETURN(firnkv::Capabilities capabilities, client_->GetCapabilities());
    for (const auto& tier : capabilities.tiers) tier_names_.push_back(tier.name);
    if (tier_names_.size() != 3) {
      return FailedPrecondition("the demonstration wants a chain of three tiers; this daemon has {}",
                                tier_names_.size());
    }
    FIRN_ASSIGN_OR_RETURN(ns_, client_->RegisterNamespace(file_.FactsOf(*kv_)));
    FIRN_ASSIGN_OR_RETURN(watch_, client_->Watch(ns_.fingerprint));
    FIRN_RETURN_IF_ERROR(watch_->Next(10'000).status());  // In force from here on.
    for (uint32_t stored = 0, number = 0; stored < kTokensWanted; stored += kv_->tokens(), ++number) {
      Sequence& sequence = sequences_.emplace_back();
      sequence.options = file_;
      if (number > 0) sequence.options.extras.push_back("sequence " + std::to_string(number));
      sequence.blocks = sequence.options.Blocks(*kv_, ns_);
      for (const FileBlock& block : sequence.blocks) {
        keys_.push_back(block.key);
        blocks_.push_back(block);
      }
      tokens_ += kv_->tokens();
    }
    return absl::OkStatus();
  }

  absl::Status Store() {
    if (sequences_.size() > 1) {
      std::printf("The file has %u tokens; they are stored %zu times, the same values under other keys each time.\n",
                  kv_->tokens(), sequences_.size());
    }
    std::printf("%u tokens stored, from %s: %u layers, %u KV heads, K %u and V %u channels wide, %s\n", tokens_,
                file_.path.c_str(), ns_.facts.layers(), ns_.facts.kv_heads, ns_.facts.k_width, ns_.facts.v_width,
                std::string(firnkv::DTypeName(ns_.facts.dtype)).c_str());
    for (const Sequence& sequence : sequences_) {
      FIRN_ASSIGN_OR_RETURN(PutSummary summary, PutFile(client_, ns_, *kv_, sequence.blocks, {}, false));
      if (summary.stored != summary.blocks) {
        return FailedPrecondition("{} of {} blocks were stored: {}", summary.stored, summary.blocks,
                                  summary.failures.empty() ? "others were there already" : summary.failures[0]);
      }
      source_bytes_ += summary.bytes;
    }
    std::printf("%zu blocks of %u tokens, %s\n\n", keys_.size(), ns_.facts.block_tokens,
                FormatBytes(source_bytes_).c_str());
    return absl::OkStatus();
  }

  absl::Status CheckMoves(const absl::StatusOr<std::vector<firnkv::MoveAnswer>>& answers) {
    FIRN_RETURN_IF_ERROR(answers.status());
    for (const auto& answer : *answers) FIRN_RETURN_IF_ERROR(answer.status);
    return absl::OkStatus();
  }
  absl::Status Demote(size_t tier) { return CheckMoves(client_->Demote(ns_, keys_, tier_names_[tier])); }
  absl::Status Degrade(size_t tier, Precision to) {
    return CheckMoves(client_->Degrade(ns_, keys_, tier_names_[tier], {to, to}));
  }

  // Bytes that the blocks' copies take in a tier.
  absl::StatusOr<uint64_t> BytesIn(const std::string& tier) {
    FIRN_ASSIGN_OR_RETURN(auto answers, client_->Describe(ns_, keys_));
    uint64_t bytes = 0;
    for (const auto& answer : answers) {
      FIRN_RETURN_IF_ERROR(answer.status);
      for (const auto& shard : answer.shards) {
        for (const auto& copy : shard.copies) bytes += tier_names_[copy.tier] == tier ? copy.bytes : 0;
      }
    }
    return bytes;
  }

  // Fetches everything and adds a row to the table, which is shown at the end.
  absl::Status Step(const std::string& what, const std::string& tier, Precision expected) {
    FIRN_ASSIGN_OR_RETURN(
        GetSummary summary,
        GetBlocks(client_, ns_, keys_, {.representation = firnkv::Representation::kFp32}, kv_.get(), &blocks_, false));
    for (const FetchedBlock& block : summary.blocks) {
      FIRN_RETURN_IF_ERROR(block.result.status);
      if (tier_names_[block.result.tier] != tier || block.result.served.Min() != expected) {
        return InternalError("a block {} was served from {} as {}; {} as {} expected", what,
                             tier_names_[block.result.tier], PairText(block.result.served), tier,
                             firnkv::PrecisionName(expected));
      }
    }
    if (summary.NotFinite(0) + summary.NotFinite(1) > 0) {
      return InvalidArgument("{} has NaN or infinities, whose errors say nothing", file_.path);
    }
    FIRN_ASSIGN_OR_RETURN(uint64_t bytes, BytesIn(tier));
    double error_k = summary.RelativeError(0).value_or(0), error_v = summary.RelativeError(1).value_or(0);
    Json row = {{"step", what},
                {"tier", tier},
                {"precision", expected == Precision::kExact ? "fp16" : firnkv::PrecisionName(expected)},
                {"blocks", summary.found},
                {"bytes", bytes},
                {"compression", static_cast<double>(source_bytes_) / static_cast<double>(bytes)},
                {"relative_error_k", error_k},
                {"relative_error_v", error_v}};
    if (expected == Precision::kExact && (error_k != 0 || error_v != 0)) {
      return InternalError("exact blocks came back with relative errors {} and {}", error_k, error_v);
    }
    std::printf("%s: all %llu blocks came from %s as %s\n", what.c_str(),
                static_cast<unsigned long long>(summary.found), tier.c_str(),
                row["precision"].get<std::string>().c_str());
    std::fflush(stdout);
    rows_.push_back(std::move(row));
    return absl::OkStatus();
  }

  // A block's bytes at a class are the same however it got there, so the two last lines may not differ at all.
  absl::Status SameErrorsAsBefore() const {
    const Json &before = rows_[rows_.size() - 2], &now = rows_.back();
    for (const char* error : {"relative_error_k", "relative_error_v"}) {
      if (before[error] != now[error]) {
        return DataLoss("{} was {} before the restart and is {} after it", error, before[error].get<double>(),
                        now[error].get<double>());
      }
    }
    return absl::OkStatus();
  }

  // What a router that watches the daemon has heard meanwhile.
  absl::Status TellEvents() {
    std::map<std::string, uint64_t> counts;
    constexpr int64_t kQuietMs = 300;
    while (true) {
      auto batch = watch_->Next(kQuietMs);
      if (absl::IsDeadlineExceeded(batch.status())) break;
      FIRN_RETURN_IF_ERROR(batch.status());
      for (const auto& event : batch->events) {
        std::string tier = event.tier < tier_names_.size() ? tier_names_[event.tier] : std::to_string(event.tier);
        ++counts[fmt::format("{} {} ({})", firnkv::EventKindName(event.kind), tier, PairText(event.now))];
      }
    }
    std::printf("events:");
    for (const auto& [what, count] : counts) {
      std::printf("%s %llu %s", what == counts.begin()->first ? "" : ",", static_cast<unsigned long long>(count),
                  what.c_str());
    }
    std::printf("\n");
    return absl::OkStatus();
  }

  static void PrintHead() {
    std::printf("%-18s %-6s %-9s %7s %11s %12s %11s %11s\n", "step", "tier", "precision", "blocks", "bytes",
                "compression", "error of K", "error of V");
  }
  static void PrintRow(const Json& row) {
    std::printf("%-18s %-6s %-9s %7llu %11s %11.2fx %11.5f %11.5f\n", row["step"].get<std::string>().c_str(),
                row["tier"].get<std::string>().c_str(), row["precision"].get<std::string>().c_str(),
                static_cast<unsigned long long>(row["blocks"].get<uint64_t>()),
                FormatBytes(row["bytes"].get<uint64_t>()).c_str(), row["compression"].get<double>(),
                row["relative_error_k"].get<double>(), row["relative_error_v"].get<double>());
    std::fflush(stdout);
  }

  absl::StatusOr<int> Save() {
    std::ofstream out(state_path_);
    out << Json{{"source_bytes", source_bytes_}, {"rows", rows_}}.dump();
    out.close();
    if (!out) return ErrnoStatus(errno, "write " + state_path_);
    return kExitOk;
  }
  absl::Status Load() {
    std::ifstream in(state_path_);
    Json state = Json::parse(in, nullptr, /*allow_exceptions=*/false);
    if (!state.is_object() || !state.contains("rows") || state["rows"].empty() ||
        !state["source_bytes"].is_number_unsigned()) {
      return InvalidArgument("{} is not the state of `firn demo before`", state_path_);
    }
    source_bytes_ = state["source_bytes"].get<uint64_t>();
    for (const Json& row : state["rows"]) rows_.push_back(row);
    return absl::OkStatus();
  }

  void Summary(bool consistent) {
    if (context_->json) {
      context_->Print({{"tokens", tokens_},
                       {"file_tokens", kv_->tokens()},
                       {"source_bytes", source_bytes_},
                       {"consistent", consistent},
                       {"rows", rows_}});
      return;
    }
    std::string repeated;
    if (sequences_.size() > 1) repeated = fmt::format(" (the file's {}, {} times)", kv_->tokens(), sequences_.size());
    std::printf("\n%u tokens%s, %s as %s. What came back, tier by tier:\n\n", tokens_, repeated.c_str(),
                FormatBytes(source_bytes_).c_str(), std::string(firnkv::DTypeName(ns_.facts.dtype)).c_str());
    PrintHead();
    for (const Json& row : rows_) PrintRow(row);
    std::printf(
        "\nThe daemon was restarted between the two lines of %s at int4: %zu of %zu blocks hit, and their errors did "
        "not change.\n",
        tier_names_[2].c_str(), keys_.size(), keys_.size());
    std::printf("%s\n", consistent ? "Every counter equals its recount." : "Counters and recount differ.");
  }

  Context* const context_;
  const FileOptions file_;
  const std::string state_path_;
  firnkv::Client* client_ = nullptr;
  std::shared_ptr<const KvFile> kv_;
  std::unique_ptr<firnkv::WatchStream> watch_;
  std::vector<std::string> tier_names_;
  firnkv::Namespace ns_;
  std::vector<Sequence> sequences_;
  std::vector<firnkv::BlockKey> keys_;  // Of all sequences, and
  std::vector<FileBlock> blocks_;       // what they are of the file.
  uint32_t tokens_ = 0;
  uint64_t source_bytes_ = 0;
  std::vector<Json> rows_;
};

}  // namespace

void AddDemo(CLI::App* app, Context* context, int* code) {
  CLI::App* demo = app->add_subcommand("demo", "Shows real K/V moving through the tiers; see deploy/demo.sh");
  demo->require_subcommand(1);
  for (bool before : {true, false}) {
    auto file = std::make_shared<FileOptions>();
    auto state = std::make_shared<std::string>();
    CLI::App* half =
        demo->add_subcommand(before ? "before" : "after", before ? "Up to the restart" : "From the restart on");
    file->AddTo(half, /*required=*/true);
    half->add_option("--state", *state, "File that carries the first half's results to the second")
        ->required()
        ->type_name("FILE");
    half->callback([=] {
      Demo run(context, *file, *state);
      auto result = before ? run.BeforeRestart() : run.AfterRestart();
      *code = result.ok() ? *result : context->Report(result.status());
    });
  }
}

}  // namespace firn::cli
