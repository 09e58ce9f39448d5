// What protection buys: real keys and values, stored at INT8, INT4 and INT2 with no checks, checks, and
// error-correcting codes, read back after independent bit flips at rates from 1e-9 to 1e-3.
//
// --json writes all points and the costs in bytes of some shapes; docs/reliability.md is made of them. With --served
// one setting is read once and the values that a worker would have are written as safetensors, for a model to be run
// on them. Prints its seed; the same seed gives the same figures.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "client/cpp/tensor/tensor_file.h"
#include "tests/bench/reliability/bit_flips.h"
#include "tests/bench/reliability/costs.h"
#include "tests/bench/reliability/measure.h"

namespace firn::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kRates[] = {1e-9, 3e-9, 1e-8, 3e-8, 1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3};
constexpr PrecisionClass kClasses[] = {PrecisionClass::k8Bit, PrecisionClass::k4Bit, PrecisionClass::k2Bit};
constexpr struct {
  const char* name;
  Ladder ladder;
} kLadders[] = {{"firn-fast", Ladder::kMinMax}, {"firn", Ladder::kTrellis}};
constexpr struct {
  const char* name;
  BlockShape shape;
} kShapes[] = {
    {"this model (8 layers, 2 KV heads)", {.layers = 8, .heads = 2, .k_width = 128, .v_width = 128}},
    {"Llama-3-8B (32 layers, 8 KV heads)", {.layers = 32, .heads = 8, .k_width = 128, .v_width = 128}},
    {"Llama-3-70B (80 layers, 8 KV heads)", {.layers = 80, .heads = 8, .k_width = 128, .v_width = 128}},
};

struct Options {
  std::string capture, json, served, protection = "checks", ladder = "firn-fast";
  uint32_t tokens = 64, blocks = 16, bits = 8;
  uint64_t tries = 512, seed = 1;
  double rate = 1e-6;
};

std::vector<StoredRecord> Store(const CodedBlocks& coded, const Protection& protection) {
  std::vector<StoredRecord> records;
  for (size_t i = 0; i < coded.size(); ++i) records.emplace_back(coded.block(i), protection);
  return records;
}

Json ToJson(const Point& p, const StoredRecord& record, const char* ladder, PrecisionClass at,
            const Protection& protection) {
  return {{"preset", ladder},
          {"bits", static_cast<uint32_t>(at)},
          {"protection", protection.name},
          {"rate", p.rate},
          {"bytes", record.total_bytes()},
          {"parity_bytes", record.parity_bytes()},
          {"damaged", p.damaged_share},
          {"missed", p.missed_share},
          {"coarser", p.coarser_share},
          {"expected_missed", p.expected.missed},
          {"expected_coarser", p.expected.coarser},
          {"served_error_k", p.served_error[0]},
          {"served_error_v", p.served_error[1]},
          {"read_error_k", p.read_error[0]},
          {"read_error_v", p.read_error[1]},
          {"tried", p.tried},
          {"tried_corrected", p.corrected},
          {"tried_missed", p.missed},
          {"tried_coarser", p.coarser},
          {"tried_wrong", p.wrong},
          {"tried_not_finite", p.not_finite}};
}

void MeasureAll(const RealBlocks& real, const Options& options, std::vector<Json>* points) {
  uint64_t seed = options.seed;
  for (const auto& [name, ladder] : kLadders) {
    for (PrecisionClass at : kClasses) {
      CodedBlocks coded(&real, ladder, at);
      for (const Protection& protection : AllProtections()) {
        const std::vector<StoredRecord> records = Store(coded, protection);
        uint64_t wrong = 0;
        for (double rate : kRates) {
          const Point point = Measure(&coded, records, protection.checked, rate, options.tries, seed++);
          points->push_back(ToJson(point, records[0], name, at, protection));
          wrong += point.wrong;
        }
        std::printf("%-10s %-5s %-14s %7llu bytes a block, %llu of %llu damaged blocks served wrong\n", name,
                    std::string(PrecisionClassName(at)).c_str(), std::string(protection.name).c_str(),
                    static_cast<unsigned long long>(records[0].total_bytes()), static_cast<unsigned long long>(wrong),
                    static_cast<unsigned long long>(options.tries * std::size(kRates)));
        std::fflush(stdout);
      }
    }
  }
}

std::vector<Json> AllCosts() {
  std::vector<Json> costs;
  for (const auto& [name, any_tokens] : kShapes) {
    for (uint32_t tokens : {16u, 64u}) {
      BlockShape shape = any_tokens;
      shape.tokens = tokens;
      for (const auto& [preset, ladder] : kLadders) {
        for (PrecisionClass at : kClasses) {
          for (const Protection& protection : AllProtections()) {
            const Cost cost = CostOf(shape, ladder, at, protection);
            costs.push_back({{"shape", name},
                             {"tokens", tokens},
                             {"preset", preset},
                             {"bits", static_cast<uint32_t>(at)},
                             {"protection", protection.name},
                             {"header_bytes", cost.header_bytes},
                             {"run_bytes", cost.run_bytes},
                             {"parity_bytes", cost.parity_bytes}});
          }
        }
      }
    }
  }
  return costs;
}

// A row a line: the file is read by people, too.
void WriteRows(std::ofstream* out, const char* name, const std::vector<Json>& rows) {
  *out << ",\n\"" << name << "\": [";
  for (size_t i = 0; i < rows.size(); ++i) *out << (i == 0 ? "\n" : ",\n") << rows[i].dump();
  *out << "\n]";
}

int MeasureToJson(const RealBlocks& real, const Options& options) {
  std::vector<Json> points;
  MeasureAll(real, options, &points);
  if (options.json.empty()) return 0;
  std::ofstream out(options.json);
  const BlockShape& s = real.shape();
  const Json setting = {{"seed", options.seed}, {"tries", options.tries}, {"blocks", real.sources().size()},
                        {"tokens", s.tokens},   {"layers", s.layers},     {"heads", s.heads},
                        {"k_width", s.k_width}, {"v_width", s.v_width}};
  out << "{\n\"setting\": " << setting.dump();
  WriteRows(&out, "points", points);
  WriteRows(&out, "costs", AllCosts());
  out << "\n}\n";
  out.close();
  FIRN_CHECK(out.good());
  return 0;
}

// Places [head][token][channel] of one layer of a block into (tokens, heads, channels).
void PlaceLayer(const std::vector<uint8_t>& values, const PartShape& part, uint32_t layer, size_t block,
                std::vector<uint8_t>* to) {
  const size_t row_bytes = size_t{part.width} * 2;
  for (uint32_t head = 0; head < part.heads; ++head) {
    for (uint32_t token = 0; token < part.tokens; ++token) {
      const size_t from = ((size_t{layer} * part.heads + head) * part.tokens + token) * row_bytes;
      const size_t at = ((block * part.tokens + token) * part.heads + head) * row_bytes;
      std::copy_n(values.begin() + static_cast<ptrdiff_t>(from), row_bytes, to->begin() + static_cast<ptrdiff_t>(at));
    }
  }
}

// Every block once, each bit flipped on its own. What is missed is the source: a worker computes it anew.
int WriteServed(const RealBlocks& real, const Options& options) {
  const Protection* protection = FindProtection(options.protection);
  FIRN_CHECK(protection != nullptr);
  CodedBlocks coded(&real, options.ladder == "firn" ? Ladder::kTrellis : Ladder::kMinMax,
                    static_cast<PrecisionClass>(options.bits));
  const std::vector<StoredRecord> records = Store(coded, *protection);
  std::mt19937_64 random(options.seed);
  const uint32_t layers = real.shape().layers;
  std::array<std::vector<std::vector<uint8_t>>, 2> arrays;
  for (Part part : kParts) {
    const uint64_t layer_bytes = real.shape().part(part).layer_values() * 2 * coded.size();
    arrays[static_cast<size_t>(part)].assign(layers, std::vector<uint8_t>(layer_bytes));
  }
  uint64_t missed = 0, coarser = 0;
  for (size_t i = 0; i < coded.size(); ++i) {
    std::vector<uint8_t> image = records[i].image();
    if (options.rate > 0) {
      BitFlips(options.rate, image.size() * 8).Draw(&random, [&](uint64_t bit) {
        image[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
      });
    }
    const ReadBack back = records[i].Read(image);
    Served served;
    if (back.missed || !coded.Decode(i, back.block, back.used, &served)) {
      ++missed;
      for (Part part : kParts) {
        const ByteSpan whole = real.sources()[i].runs[RunIndex(RunKind::kWhole, part)].spans()[0];
        served.values[static_cast<size_t>(part)].assign(whole.begin(), whole.end());
      }
    }
    coarser += back.coarser;
    for (Part part : kParts) {
      auto& to = arrays[static_cast<size_t>(part)];
      for (uint32_t layer = 0; layer < layers; ++layer) {
        PlaceLayer(served.values[static_cast<size_t>(part)], real.shape().part(part), layer, i, &to[layer]);
      }
    }
  }
  std::vector<Tensor> tensors;
  for (Part part : kParts) {
    const PartShape shape = real.shape().part(part);
    for (uint32_t layer = 0; layer < layers; ++layer) {
      tensors.push_back({.name = "layer" + std::to_string(real.layers()[layer]) + (part == Part::kK ? ".k" : ".v"),
                         .type = ElementType::kF16,
                         .shape = {coded.size() * shape.tokens, shape.heads, shape.width},
                         .bytes = arrays[static_cast<size_t>(part)][layer]});
    }
  }
  const absl::Status written = WriteSafetensors(options.served, tensors, {});
  FIRN_CHECK(written.ok());
  std::printf("blocks %zu missed %llu coarser %llu bytes %llu\n", coded.size(), static_cast<unsigned long long>(missed),
              static_cast<unsigned long long>(coarser), static_cast<unsigned long long>(records[0].total_bytes()));
  return 0;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("What protection buys, on real keys and values");
  app.add_option("--capture", options.capture, "safetensors with layerN.k and layerN.v")->required();
  app.add_option("--tokens", options.tokens, "of a block")->check(CLI::Range(1, 4096));
  app.add_option("--blocks", options.blocks, "of the capture, at most")->check(CLI::Range(1, 100000));
  app.add_option("--tries", options.tries, "damaged blocks a point")->check(CLI::Range(1, 10'000'000));
  app.add_option("--seed", options.seed);
  app.add_option("--json", options.json, "where to write results");
  app.add_option("--served", options.served, "write what one setting serves, and end");
  app.add_option("--protection", options.protection, "of --served");
  app.add_option("--preset", options.ladder, "of --served")->check(CLI::IsMember({"firn", "firn-fast"}));
  app.add_option("--bits", options.bits, "of --served")->check(CLI::IsMember({8, 4, 2}));
  app.add_option("--rate", options.rate, "of --served")->check(CLI::Range(0.0, 0.5));
  CLI11_PARSE(app, argc, argv);
  if (FindProtection(options.protection) == nullptr) {
    std::fprintf(stderr, "no protection '%s'\n", options.protection.c_str());
    return 2;
  }
  auto real = RealBlocks::Open(options.capture, options.tokens, options.blocks);
  if (!real.ok()) {
    std::fprintf(stderr, "%s\n", std::string(real.status().message()).c_str());
    return 1;
  }
  std::printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
  return options.served.empty() ? MeasureToJson(*real, options) : WriteServed(*real, options);
}

}  // namespace
}  // namespace firn::bench

int main(int argc, char** argv) { return firn::bench::Main(argc, argv); }
