#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>

#include "base/read_file.h"
#include "base/status.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/output.h"
#include "codecs/artifact.h"

namespace firn::cli {
namespace {

constexpr uint64_t kArtifactBytesMax = uint64_t{1} << 30;

struct Section {
  std::string name, shape, range;
};

std::string RangeOf(const std::vector<float>& values) {
  auto [least, most] = std::minmax_element(values.begin(), values.end());
  return fmt::format("{:.6g} to {:.6g}", *least, *most);
}

std::vector<Section> SectionsOf(const Artifact& artifact) {
  const ArtifactSections& s = artifact.sections();
  std::string channels = fmt::format("[{}][{}][{}]", s.layers, s.heads, s.width);
  std::vector<Section> out;
  auto add = [&](const char* name, const std::string& shape, const std::vector<float>& values) {
    if (!values.empty()) out.push_back({name, shape, RangeOf(values)});
  };
  add("balance means", channels, s.mean);
  add("balance weights", channels, s.weight);
  add("centres", channels, s.centre);
  add("reaches", channels, s.reach);
  add("calibrated scales", fmt::format("[{}][{}]", s.layers, s.heads), s.scales);
  for (const Codebook& book : s.codebooks) {
    out.push_back({fmt::format("codebook of {} bits{}", book.bits, book.levels == book.decoded ? "" : ", normalised"),
                   fmt::format("[{}][{}]", s.layers, 1u << book.bits), RangeOf(book.decoded)});
  }
  if (artifact.has_rope()) {
    const auto& frequencies = s.rope.frequencies;
    auto [least, most] = std::minmax_element(frequencies.begin(), frequencies.end());
    out.push_back({s.rope.interleaved ? "rope, neighbours" : "rope, halves", fmt::format("[{}]", frequencies.size()),
                   fmt::format("{:.6g} to {:.6g} radians a position", *least, *most)});
  }
  return out;
}

// What else is at hand where artifacts are, by how a file begins.
std::string WhatItIs(std::string_view bytes) {
  constexpr size_t kShown = 16;
  auto printable = [](unsigned char c) { return std::isprint(c) != 0 || std::isspace(c) != 0; };
  std::string_view beginning = bytes.substr(0, kShown);
  if (bytes.empty()) return "an empty file";
  if (bytes.starts_with("FVCS")) return "the state of a calibration (`firn calibrate --resume`)";
  if (bytes.starts_with("\x93NUMPY")) return "a .npy file";
  if (bytes.size() > 8 && bytes[8] == '{') return "a safetensors file";
  if (std::all_of(beginning.begin(), beginning.end(), printable)) return "a text file";
  return fmt::format("a file that begins with the bytes {:02x}",
                     fmt::join(AsBytes(beginning.substr(0, kArtifactMagic.size())), " "));
}

absl::StatusOr<int> ShowArtifact(Context* context, const std::string& path) {
  FIRN_ASSIGN_OR_RETURN(std::string bytes, ReadSmallFile(path, kArtifactBytesMax));
  if (!bytes.starts_with(kArtifactMagic)) {
    return InvalidArgument(
        "{} is {}, not an artifact; expected: a file that `firn calibrate` (--out-keys, --out-values) or `firn "
        "import-scales` wrote, which begins with {}",
        path, WhatItIs(bytes), kArtifactMagic);
  }
  auto parsed = Artifact::Parse(AsBytes(bytes));
  if (!parsed.ok()) {
    return InvalidArgument("{} begins as an artifact and cannot be read as one: {}", path, Message(parsed.status()));
  }
  const Artifact& artifact = **parsed;
  if (context->json) {
    Json document = {{"artifact", artifact.digest().Hex()}, {"layers", artifact.layers()}, {"heads", artifact.heads()},
                     {"width", artifact.width()},           {"bytes", bytes.size()},       {"sections", Json::array()}};
    for (const Section& section : SectionsOf(artifact)) {
      document["sections"].push_back({{"name", section.name}, {"shape", section.shape}, {"values", section.range}});
    }
    context->Print(document);
    return kExitOk;
  }
  std::printf("%s\n%u layers of %u KV heads of %u channels, %zu bytes\n", artifact.digest().Hex().c_str(),
              artifact.layers(), artifact.heads(), artifact.width(), bytes.size());
  Table table({"SECTION", "SHAPE", "VALUES"});
  for (const Section& section : SectionsOf(artifact)) table.Row({section.name, section.shape, section.range});
  table.Print();
  return kExitOk;
}

}  // namespace

void AddArtifact(CLI::App* app, Context* context, int* code) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = app->add_subcommand("artifact", "What an artifact file holds: sections, shapes, digest");
  command->add_option("file", *path, "As `firn calibrate` (--out-keys, --out-values) or `firn import-scales` writes it")
      ->required()
      ->type_name("FILE");
  command->callback([path, context, code] {
    absl::StatusOr<int> done = ShowArtifact(context, *path);
    *code = done.ok() ? *done : context->Report(done.status());
  });
}

}  // namespace firn::cli
