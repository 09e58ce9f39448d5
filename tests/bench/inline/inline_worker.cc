// inline_worker: what client/examples/gpu_worker does, with the values in this process's memory and through gRPC
// streams: puts blocks of 32 layers, 8 heads, 64 tokens, 128 channels of FP16 and gets them back, for so many seconds.
//
//   inline_worker --socket PATH [--seconds 3] [--blocks 8] [--go FILE]
//
// With --go, it prints `ready` once it has all that it needs and begins when FILE is there. Ends with one line; exit
// code 1: other bytes came back.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>

#include "base/status.h"
#include "firnkv/client.h"

namespace firn::bench {
namespace {

constexpr uint32_t kLayers = 32, kHeads = 8, kTokens = 64, kWidth = 128;
constexpr uint64_t kPartBytes = uint64_t{kLayers} * kHeads * kTokens * kWidth * 2;

struct Options {
  std::string socket, go;
  double seconds = 3;
  uint32_t blocks = 8;
};

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

absl::Status Run(const Options& options) {
  FIRN_ASSIGN_OR_RETURN(auto client, firnkv::Client::Create({.address = options.socket}));
  FIRN_RETURN_IF_ERROR(client->WaitUntilReady(30'000));
  FIRN_ASSIGN_OR_RETURN(firnkv::Namespace ns, client->RegisterNamespace({.model_id = "inline_worker",
                                                                         .layer_last = kLayers,
                                                                         .kv_heads = kHeads,
                                                                         .k_width = kWidth,
                                                                         .v_width = kWidth,
                                                                         .block_tokens = kTokens}));
  std::vector<uint8_t> values(options.blocks * 2 * kPartBytes), back(values.size());
  // Finite FP16.
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>((i * 2654435761u) >> 24) & 0x3B;
  auto part = [](auto& all, uint32_t block, uint64_t which) {
    return std::span(all).subspan((2 * block + which) * kPartBytes, kPartBytes);
  };
  if (!options.go.empty()) {
    std::puts("ready");
    std::fflush(stdout);
    while (access(options.go.c_str(), F_OK) != 0) usleep(1000);
  }
  const double begin = Seconds();
  double put_s = 0, get_s = 0;
  uint64_t blocks = 0, missed = 0;
  while (Seconds() - begin < options.seconds) {
    std::vector<firnkv::PutItem> puts(options.blocks);
    std::vector<firnkv::GetItem> gets(options.blocks);
    for (uint32_t b = 0; b < options.blocks; ++b) {
      puts[b].key = gets[b].key = firnkv::BlockKey::Opaque(fmt::format("inline_worker {} {}", getpid(), blocks + b));
      puts[b].tokens = kTokens;
      puts[b].parts = {.k = std::span<const uint8_t>(part(values, b, 0)),
                       .v = std::span<const uint8_t>(part(values, b, 1))};
      gets[b].parts = {.k = part(back, b, 0), .v = part(back, b, 1)};
    }
    double since = Seconds();
    FIRN_ASSIGN_OR_RETURN(auto stored, client->Put(ns, puts));
    put_s += Seconds() - since;
    for (const auto& result : stored) FIRN_RETURN_IF_ERROR(result.status);
    since = Seconds();
    FIRN_ASSIGN_OR_RETURN(auto got, client->Get(ns, gets));
    get_s += Seconds() - since;
    for (uint32_t b = 0; b < options.blocks; ++b) {
      if (absl::IsNotFound(got[b].status)) {
        ++missed;
        continue;
      }
      FIRN_RETURN_IF_ERROR(got[b].status);
      bool exact = got[b].served.k == firnkv::Precision::kExact && got[b].served.v == firnkv::Precision::kExact;
      for (uint64_t which : {0, 1}) {
        if (exact && !std::ranges::equal(part(values, b, which), part(back, b, which)))
          return DataLoss("other bytes came back");
      }
    }
    blocks += options.blocks;
  }
  double gb = static_cast<double>(blocks * 2 * kPartBytes) / 1e9;
  std::printf("worker blocks of %.2f MB: put %llu at %.2f GB/s, got %llu at %.2f GB/s, missed %llu, in %.2f s\n",
              2.0 * kPartBytes / 1e6, static_cast<unsigned long long>(blocks), gb / put_s,
              static_cast<unsigned long long>(blocks - missed), gb / get_s, static_cast<unsigned long long>(missed),
              Seconds() - begin);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("Puts and gets of one worker over gRPC");
  Options options;
  app.add_option("--socket", options.socket, "The daemon's")->required();
  app.add_option("--go", options.go, "Begin when this file is there");
  app.add_option("--seconds", options.seconds, "How long")->check(CLI::PositiveNumber);
  app.add_option("--blocks", options.blocks, "Blocks a call")->check(CLI::Range(1, 64));
  CLI11_PARSE(app, argc, argv);
  absl::Status status = Run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "inline_worker: %s\n", Message(status).c_str());
  return 1;
}

}  // namespace
}  // namespace firn::bench

int main(int argc, char** argv) { return firn::bench::Main(argc, argv); }
