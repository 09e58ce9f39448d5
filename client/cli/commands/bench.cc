#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <mutex>
#include <random>
#include <thread>

#include "base/bytes.h"
#include "base/status.h"
#include "base/units.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/numbers.h"
#include "client/cli/support/output.h"

namespace firn::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kLayers = 8, kHeads = 8, kWidth = 128;
constexpr uint64_t kTokenBytes = uint64_t{kLayers} * kHeads * kWidth * 2 * 2;  // FP16, K and V.

// FP16 numbers around zero, of the size that keys and values have.
std::vector<uint8_t> RandomValues(uint64_t bytes, uint64_t seed) {
  std::vector<uint8_t> out(bytes);
  std::mt19937_64 random(seed);
  for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
    // Sign and mantissa as they come, exponents from 2^-4 to 2^-1.
    uint64_t bits = random();
    StoreLe<uint64_t>(&out[i],
                      (bits & 0x8FFF8FFF8FFF8FFFull) | 0x2000200020002000ull | ((bits >> 3) & 0x0C000C000C000C00ull));
  }
  return out;
}

struct Measured {
  std::vector<double> seconds;  // One a call.
  double wall_seconds = 0;
  uint64_t bytes = 0, failed = 0;
  std::string failure;

  double Percentile(double share) const {
    if (seconds.empty()) return 0;
    return seconds[std::min(seconds.size() - 1, static_cast<size_t>(share * static_cast<double>(seconds.size())))];
  }
};

struct BenchCommand {
  std::string size = "1MiB";
  uint32_t count = 64, threads = 1;
  bool keep = false;

  // One call a block, `threads` callers at once.
  template <typename Call>
  Measured Run(uint64_t block_bytes, Call call) const {
    Measured total;
    std::mutex mu;
    auto start = Clock::now();
    std::vector<std::thread> callers;
    for (uint32_t t = 0; t < threads; ++t) {
      callers.emplace_back([&, t] {
        for (uint32_t i = t; i < count; i += threads) {
          auto before = Clock::now();
          absl::Status status = call(i);
          double seconds = std::chrono::duration<double>(Clock::now() - before).count();
          std::lock_guard lock(mu);
          total.seconds.push_back(seconds);
          total.bytes += status.ok() ? block_bytes : 0;
          if (!status.ok() && total.failed++ == 0) total.failure = Message(status);
        }
      });
    }
    for (auto& caller : callers) caller.join();
    total.wall_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    std::sort(total.seconds.begin(), total.seconds.end());
    return total;
  }

  absl::StatusOr<int> Run(Context* context) const {
    auto parsed = ParseBytes(size);
    if (!parsed.ok()) return InvalidArgument("--size {}: {}", size, Message(parsed.status()));
    uint64_t bytes = *parsed;
    if (bytes < kTokenBytes || bytes % kTokenBytes != 0 || bytes / kTokenBytes > 65536) {
      return InvalidArgument("--size {}: a multiple of {} B, at most {}, expected", size, kTokenBytes,
                             FormatBytes(65536 * kTokenBytes));
    }
    auto tokens = static_cast<uint32_t>(bytes / kTokenBytes);
    FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
    FIRN_ASSIGN_OR_RETURN(firnkv::Capabilities capabilities, client->GetCapabilities());
    std::random_device entropy;
    std::string run = fmt::format("bench-{:08x}{:08x}", entropy(), entropy());
    // A namespace of this run's own where it can be removed again; otherwise one for all runs, or they would pile up.
    firnkv::NamespaceFacts facts{.model_id = "firn-bench",
                                 .revision = capabilities.admin ? run : "",
                                 .layer_last = kLayers,
                                 .kv_heads = kHeads,
                                 .k_width = kWidth,
                                 .v_width = kWidth,
                                 .block_tokens = tokens};
    FIRN_ASSIGN_OR_RETURN(firnkv::Namespace ns, client->RegisterNamespace(facts));
    std::vector<uint8_t> values = RandomValues(bytes, 1);
    auto key = [&run](uint32_t i) { return firnkv::BlockKey::Opaque(fmt::format("{}-{}", run, i)); };

    Measured put = Run(bytes, [&](uint32_t i) {
      std::vector<firnkv::PutItem> items = {{.key = key(i), .tokens = tokens}};
      std::span<const uint8_t> all = values;
      items[0].parts = {.k = all.first(ns.KBytes(tokens)), .v = all.subspan(ns.KBytes(tokens))};
      auto results = client->Put(ns, items);
      return results.ok() ? results->front().status : results.status();
    });
    std::vector<std::vector<uint8_t>> buffers(threads, std::vector<uint8_t>(bytes));
    Measured get = Run(bytes, [&](uint32_t i) {
      std::span<uint8_t> all = buffers[i % threads];
      std::vector<firnkv::GetItem> items = {{.key = key(i)}};
      items[0].parts = {.k = all.first(ns.KBytes(tokens)), .v = all.subspan(ns.KBytes(tokens))};
      auto results = client->Get(ns, items);
      return results.ok() ? results->front().status : results.status();
    });
    if (!keep && capabilities.admin) {
      FIRN_RETURN_IF_ERROR(client->RemoveNamespace(ns).status());
    } else if (!keep) {
      std::vector<firnkv::BlockKey> keys;
      for (uint32_t i = 0; i < count; ++i) keys.push_back(key(i));
      FIRN_RETURN_IF_ERROR(client->Delete(ns, keys).status());
      if (!context->quiet)
        std::fprintf(stderr, "firn: namespace %s stays, without blocks: this listener has no Admin service\n",
                     ShortHex(ns.fingerprint).c_str());
    }
    Show(*context, bytes, put, get);
    return put.failed + get.failed == 0 ? kExitOk : kExitSome;
  }

  void Show(const Context& context, uint64_t bytes, const Measured& put, const Measured& get) const {
    Json document = {{"block_bytes", bytes}, {"count", count}, {"threads", threads}};
    Table table({"call", "GB/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "failed"});
    for (auto [name, measured] : {std::pair("put", &put), {"get", &get}}) {
      double rate = static_cast<double>(measured->bytes) / measured->wall_seconds / 1e9;
      document[name] = {{"gb_per_s", rate},
                        {"p50_ms", measured->Percentile(0.5) * 1e3},
                        {"p90_ms", measured->Percentile(0.9) * 1e3},
                        {"p99_ms", measured->Percentile(0.99) * 1e3},
                        {"max_ms", measured->Percentile(1) * 1e3},
                        {"failed", measured->failed}};
      auto ms = [](double seconds) { return fmt::format("{:.3f}", seconds * 1e3); };
      table.Row({name, fmt::format("{:.2f}", rate), ms(measured->Percentile(0.5)), ms(measured->Percentile(0.9)),
                 ms(measured->Percentile(0.99)), ms(measured->Percentile(1)), std::to_string(measured->failed)});
      if (measured->failed > 0) std::fprintf(stderr, "firn: %s: %s\n", name, measured->failure.c_str());
    }
    context.json ? context.Print(document) : table.Print();
  }
};

}  // namespace

void AddBench(CLI::App* app, Context* context, int* code) {
  auto command = std::make_shared<BenchCommand>();
  CLI::App* bench = app->add_subcommand("bench", "Measures Put and Get, one block a call: throughput and latency");
  bench->add_option("--size", command->size, "Bytes of a block, with a unit (default: " + command->size + ")")
      ->type_name("SIZE");
  bench->add_option("--count", command->count, fmt::format("Blocks, 1 to 1000000 (default: {})", command->count))
      ->check(WholeNumber<uint32_t>(1, 1'000'000))
      ->type_name("BLOCKS");
  bench
      ->add_option("--threads", command->threads,
                   fmt::format("Callers at once, 1 to 256 (default: {})", command->threads))
      ->check(WholeNumber<uint32_t>(1, 256))
      ->type_name("THREADS");
  bench->add_flag("--keep", command->keep, "Leave the blocks and their namespace (default: they are removed)");
  bench->callback([=] {
    auto result = command->Run(context);
    *code = result.ok() ? *result : context->Report(result.status());
  });
}

}  // namespace firn::cli
