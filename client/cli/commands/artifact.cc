#include <CLI/CLI.hpp>
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
  add("FP8 scales", fmt::format("[{}][{}]", s.layers, s.heads), s.scales);
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

absl::StatusOr<int> ShowArtifact(Context* context, const std::string& path) {
  FIRN_ASSIGN_OR_RETURN(std::string bytes, ReadSmallFile(path, kArtifactBytesMax));
  auto parsed = Artifact::Parse(AsBytes(bytes));
  if (!parsed.ok()) return InvalidArgument("{}: {}", path, Message(parsed.status()));
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
  command->add_option("file", *path, "As `firn calibrate --out` writes it")->required();
  command->callback([path, context, code] {
    absl::StatusOr<int> done = ShowArtifact(context, *path);
    *code = done.ok() ? *done : context->Report(done.status());
  });
}

}  // namespace firn::cli
