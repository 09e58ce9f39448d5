// inline_bench: Put and Get over gRPC on a Unix socket, one stream, against a bare gRPC byte stream between the same
// two processes' likes, in the same run and in alternating rounds.
//
//   inline_bench --firnd PATH [--rounds N] [--json FILE]
//
// Ours: firnkv::Client in this process, firnd in another; values cross in the client's memory and are stored, checked
// and read back. Reference: bare_stream.h. It is measured with the daemon's chunk size and with one message a unit; the
// faster one counts.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "base/status.h"
#include "base/units.h"
#include "firnkv/client.h"
#include "tests/bench/inline/bare_stream.h"
#include "tests/bench/support/process.h"
#include "tests/bench/support/report.h"

namespace firn::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kUnits = 32;
constexpr uint64_t kUnitBytes = 4 * kMiB;

constexpr double kGigabytes = static_cast<double>(kUnits * kUnitBytes) / 1e9;

// What the rounds of one kind took. The processor time of both ends says what a busy machine cannot hide.
struct Series {
  std::vector<double> rates;                                     // GB/s.
  std::vector<double> client_seconds_a_gb, server_seconds_a_gb;  // Of processor time.
};

template <typename Call>
absl::Status Measure(const Child& server, bool count, Series* series, Call call) {
  double client = OwnCpuSeconds(), other = server.CpuSeconds();
  auto start = Clock::now();
  FIRN_RETURN_IF_ERROR(call());
  double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (!count) return absl::OkStatus();
  series->rates.push_back(kGigabytes / seconds);
  series->client_seconds_a_gb.push_back((OwnCpuSeconds() - client) / kGigabytes);
  series->server_seconds_a_gb.push_back((server.CpuSeconds() - other) / kGigabytes);
  return absl::OkStatus();
}

class InlineBench {
 public:
  explicit InlineBench(std::string firnd) : firnd_(std::move(firnd)), folder_("") {}

  absl::Status Run(int rounds, Report* report) {
    FIRN_RETURN_IF_ERROR(Start());
    // Reference kinds: chunks as the daemon takes them, one message a unit, and chunks copied to memory by the
    // receiver.
    const BareUnits kinds[3] = {{kUnitBytes, kUnits, chunk_bytes_, false},
                                {kUnitBytes, kUnits, static_cast<uint32_t>(kUnitBytes), false},
                                {kUnitBytes, kUnits, chunk_bytes_, true}};
    Series put, get, upload[3], download[3];
    for (int round = -1; round < rounds; ++round) {  // The first round warms both sides up and is not counted.
      bool count = round >= 0;
      FIRN_RETURN_IF_ERROR(Measure(*daemon_, count, &put, [&] { return PutAll(); }));
      for (int i = 0; i < 3; ++i) {
        FIRN_RETURN_IF_ERROR(
            Measure(*bare_server_, count, &upload[i], [&] { return bare_->Upload(kinds[i], values_); }));
      }
      FIRN_RETURN_IF_ERROR(Measure(*daemon_, count, &get, [&] { return GetAll(); }));
      for (int i = 0; i < 3; ++i) {
        FIRN_RETURN_IF_ERROR(Measure(*bare_server_, count, &download[i], [&] { return bare_->Download(kinds[i]); }));
      }
      FIRN_RETURN_IF_ERROR(DeleteAll());
    }
    auto best = [](const Series& series) { return *std::max_element(series.rates.begin(), series.rates.end()); };
    report->Value("inline_put_best", best(put), "GB/s", "the best round: what a busy machine hides");
    report->Value("inline_get_best", best(get), "GB/s", "");
    report->Value("bare_put_best", std::max(best(upload[0]), best(upload[1])), "GB/s", "");
    report->Value("bare_get_best", std::max(best(download[0]), best(download[1])), "GB/s", "");
    auto processor = [&](const std::string& name, const Series& series) {
      report->Value(name + "_server_cpu", Median(series.server_seconds_a_gb), "s/GB", "processor time of the server");
      report->Value(name + "_client_cpu", Median(series.client_seconds_a_gb), "s/GB", "processor time of the client");
    };
    processor("inline_put", put);
    processor("bare_put_dropped", upload[0]);
    processor("bare_put_kept", upload[2]);
    processor("inline_get", get);
    processor("bare_get_dropped", download[0]);
    processor("bare_get_kept", download[2]);
    auto faster = [](const Series& a, const Series& b) { return std::max(Median(a.rates), Median(b.rates)); };
    double up = faster(upload[0], upload[1]), down = faster(download[0], download[1]);
    const char* dropped = "4 MiB blocks, one stream; a bare gRPC byte stream whose receiver drops what comes";
    const char* kept = "4 MiB blocks, one stream; a bare gRPC byte stream whose receiver copies it to memory";
    report->Ratio({"inline_put", Median(put.rates), up, "GB/s", dropped});
    report->Ratio({"inline_get", Median(get.rates), down, "GB/s", dropped});
    report->Ratio({"inline_put_kept", Median(put.rates), Median(upload[2].rates), "GB/s", kept});
    report->Ratio({"inline_get_kept", Median(get.rates), Median(download[2].rates), "GB/s", kept});
    return absl::OkStatus();
  }

 private:
  absl::Status Start() {
    std::ofstream(folder_.path() + "/firnd.toml") << fmt::format(
        "state_dir = \"{0}\"\nruntime_dir = \"{0}\"\n[admin]\nhttp = \"off\"\n"
        "[[tier]]\nname = \"hot\"\nmedium = \"dram\"\ncapacity = \"512MiB\"\n",
        folder_.path());
    FIRN_ASSIGN_OR_RETURN(daemon_,
                          Child::Start({firnd_, "--config", folder_.path() + "/firnd.toml"}, folder_.path() + "/log"));
    FIRN_ASSIGN_OR_RETURN(client_, firnkv::Client::Create({.address = "unix:" + folder_.path() + "/firnd.sock"}));
    FIRN_RETURN_IF_ERROR(client_->WaitUntilReady(30'000));
    FIRN_ASSIGN_OR_RETURN(firnkv::Capabilities capabilities, client_->GetCapabilities());
    chunk_bytes_ = capabilities.limits.chunk_bytes_max;

    std::string bare_address = "unix:" + folder_.path() + "/bare.sock";
    FIRN_ASSIGN_OR_RETURN(bare_server_,
                          Child::Start({"/proc/self/exe", "--bare-server", bare_address}, folder_.path() + "/log"));
    bare_ = std::make_unique<BareClient>(bare_address, /*tuned=*/true);
    FIRN_RETURN_IF_ERROR(bare_->Download({4096, 1, 4096}));

    // 8 layers of 8 heads of 128 channels: 32 KiB a token, 128 tokens a block of 4 MiB.
    FIRN_ASSIGN_OR_RETURN(ns_, client_->RegisterNamespace({.model_id = "inline-bench",
                                                           .layer_last = 8,
                                                           .kv_heads = 8,
                                                           .k_width = 128,
                                                           .v_width = 128,
                                                           .block_tokens = 128}));
    values_.resize(kUnitBytes);
    for (size_t i = 0; i < values_.size(); ++i)
      values_[i] = static_cast<uint8_t>((i * 2654435761u) >> 24) & 0x3B;  // Finite FP16.
    target_.resize(kUnitBytes);
    for (uint32_t i = 0; i < kUnits; ++i) keys_.push_back(firnkv::BlockKey::Opaque("block " + std::to_string(i)));
    return absl::OkStatus();
  }

  absl::Status PutAll() {
    std::vector<firnkv::PutItem> items;
    std::span<const uint8_t> all = values_;
    for (const auto& key : keys_) {
      firnkv::PutItem& item = items.emplace_back();
      item.key = key;
      item.tokens = 128;
      item.parts = {.k = all.first(kUnitBytes / 2), .v = all.subspan(kUnitBytes / 2)};
    }
    FIRN_ASSIGN_OR_RETURN(auto results, client_->Put(ns_, items));
    for (const auto& result : results) {
      FIRN_RETURN_IF_ERROR(result.status);
      if (!result.stored) return InternalError("a block was there before it was put");
    }
    return absl::OkStatus();
  }

  absl::Status GetAll() {
    std::vector<firnkv::GetItem> items;
    std::span<uint8_t> all = target_;  // One buffer for all, as an engine's staging buffer is.
    for (const auto& key : keys_) {
      items.push_back({.key = key, .parts = {.k = all.first(kUnitBytes / 2), .v = all.subspan(kUnitBytes / 2)}});
    }
    FIRN_ASSIGN_OR_RETURN(auto results, client_->Get(ns_, items));
    for (const auto& result : results) FIRN_RETURN_IF_ERROR(result.status);
    return target_ == values_ ? absl::OkStatus() : DataLoss("other bytes came back");
  }

  absl::Status DeleteAll() {
    FIRN_ASSIGN_OR_RETURN(auto statuses, client_->Delete(ns_, keys_));
    for (const auto& status : statuses) FIRN_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  const std::string firnd_;
  TempFolder folder_;
  std::unique_ptr<Child> daemon_, bare_server_;
  std::unique_ptr<firnkv::Client> client_;
  std::unique_ptr<BareClient> bare_;
  uint32_t chunk_bytes_ = 0;
  firnkv::Namespace ns_;
  std::vector<uint8_t> values_, target_;
  std::vector<firnkv::BlockKey> keys_;
};

int Main(int argc, char** argv) {
  CLI::App app("Put and Get over gRPC against a bare gRPC byte stream");
  std::string firnd, bare_address, json;
  int rounds = 9;
  app.add_option("--firnd", firnd, "The daemon's program");
  app.add_option("--bare-server", bare_address, "Be the other end of the bare stream (used by the benchmark itself)");
  app.add_option("--rounds", rounds, "Rounds")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--json", json, "Write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  if (!bare_address.empty()) {
    BareServer server(bare_address, /*tuned=*/true);
    pause();
    return 0;
  }
  Report report("inline_bench");
  InlineBench bench(firnd);
  absl::Status status = bench.Run(rounds, &report);
  if (status.ok()) status = report.Finish(json);
  if (status.ok()) return 0;
  std::fprintf(stderr, "inline_bench: %s\n", Message(status).c_str());
  return 1;
}

}  // namespace
}  // namespace firn::bench

int main(int argc, char** argv) { return firn::bench::Main(argc, argv); }
