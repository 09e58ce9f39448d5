#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "base/status.h"
#include "base/units.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/numbers.h"
#include "client/cli/support/output.h"
#include "client/cli/support/transfer.h"
#include "client/cpp/tensor/output_file.h"
#include "client/cpp/tensor/tensor_file.h"

namespace firn::cli {
namespace {

using firnkv::Representation;

const std::map<std::string, Representation> kRepresentations = {{"source", Representation::kSource},
                                                                {"fp16", Representation::kFp16},
                                                                {"bf16", Representation::kBf16},
                                                                {"fp32", Representation::kFp32},
                                                                {"packed", Representation::kPacked}};

ElementType ElementOf(firnkv::DType dtype) {
  switch (dtype) {
    case firnkv::DType::kFp16:
      return ElementType::kF16;
    case firnkv::DType::kBf16:
      return ElementType::kBf16;
    case firnkv::DType::kFp32:
      return ElementType::kF32;
    case firnkv::DType::kFp8E4m3:
      return ElementType::kF8E4m3;
    case firnkv::DType::kFp8E5m2:
      return ElementType::kF8E5m2;
    default:
      return ElementType::kU8;
  }
}

struct GetCommand {
  BlockOptions blocks;
  std::string as = "source", least, most, out;
  bool check = false;
  uint32_t layer_first = 0, layer_count = 0;

  absl::StatusOr<int> Run(Context* context) {
    firnkv::GetOptions options;
    options.representation = check ? Representation::kFp32 : kRepresentations.at(as);
    options.layer_first = layer_first;
    options.layer_count = layer_count;
    if (!least.empty() && !ParsePair(least, &options.least)) return NotAPrecision("--least", least);
    if (!most.empty() && !ParsePair(most, &options.most)) return NotAPrecision("--most", most);
    if (check && blocks.file.path.empty()) return InvalidArgument("--check needs --file, to compare with");
    if (check && (layer_first != 0 || layer_count != 0)) return InvalidArgument("--check compares all layers");
    if (!out.empty()) FIRN_RETURN_IF_ERROR(CheckOutputPath(out));
    FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
    FIRN_ASSIGN_OR_RETURN(firnkv::Capabilities capabilities, client->GetCapabilities());
    FIRN_ASSIGN_OR_RETURN(Selection selection, blocks.Select(client));
    std::shared_ptr<const KvFile> kv;
    std::vector<FileBlock> file_blocks;
    if (check) {
      FileOptions named = blocks.file;
      named.model = blocks.ns.model;
      FIRN_ASSIGN_OR_RETURN(kv, named.Open());
      file_blocks = named.Blocks(*kv, selection.ns);
    }
    bool progress = !context->quiet && !context->json;
    FIRN_ASSIGN_OR_RETURN(GetSummary summary,
                          GetBlocks(client, selection.ns, selection.keys, options, kv.get(), &file_blocks, progress));
    if (!out.empty()) FIRN_RETURN_IF_ERROR(Write(selection, summary));
    Show(*context, capabilities, selection, summary);
    return summary.missed + summary.failed == 0 ? kExitOk : kExitSome;
  }

  // One group of tensors a block: KEY.k and KEY.v of shape (layers, heads, tokens, channels), or KEY.record when
  // packed.
  absl::Status Write(const Selection& selection, const GetSummary& summary) const {
    std::vector<Tensor> tensors;
    std::map<std::string, std::string> metadata;
    const firnkv::NamespaceFacts& facts = selection.ns.facts;
    for (size_t i = 0; i < summary.blocks.size(); ++i) {
      const firnkv::GetResult& result = summary.blocks[i].result;
      if (!result.status.ok()) continue;
      FIRN_ASSIGN_OR_RETURN(firnkv::Digest digest, selection.keys[i].ToDigest());
      std::string name = digest.Hex();
      std::span<const uint8_t> rest = result.payload;
      auto add = [&](const std::string& suffix, ElementType type, std::vector<uint64_t> shape, uint64_t bytes) {
        if (bytes > 0)
          tensors.push_back(
              {.name = name + suffix, .type = type, .shape = std::move(shape), .bytes = rest.first(bytes)});
        rest = rest.subspan(bytes);
      };
      metadata[name] = "served " + PairText(result.served) + ", first token " + std::to_string(result.first_token);
      if (as == "packed") {
        add(".runs", ElementType::kU8, {rest.size()}, rest.size());
        tensors.push_back({.name = name + ".header",
                           .type = ElementType::kU8,
                           .shape = {result.record_header.size()},
                           .bytes = AsBytes(result.record_header)});
        continue;
      }
      ElementType type = ElementOf(result.dtype);
      add(".k", type, {result.layers, facts.kv_heads, result.tokens, facts.k_width}, result.k_bytes);
      add(".v", type, {result.layers, facts.kv_heads, result.tokens, facts.v_width}, result.v_bytes);
      add(".k_scale", ElementType::kF32, {result.layers, facts.kv_heads}, result.k_scale_bytes);
      add(".v_scale", ElementType::kF32, {result.layers, facts.kv_heads}, result.v_scale_bytes);
    }
    return WriteSafetensors(out, tensors, metadata);
  }

  void Show(const Context& context, const firnkv::Capabilities& capabilities, const Selection& selection,
            const GetSummary& summary) const {
    auto tier_name = [&](uint32_t tier) {
      return tier < capabilities.tiers.size() ? capabilities.tiers[tier].name : std::to_string(tier);
    };
    if (context.json) {
      Json rows = Json::array();
      for (size_t i = 0; i < summary.blocks.size(); ++i) {
        const FetchedBlock& block = summary.blocks[i];
        const absl::Status& status = block.result.status;
        Json row = {{"key", KeyText(selection.keys[i])},
                    {"found", status.ok()},
                    {"status", status.ok()                ? "found"
                               : absl::IsNotFound(status) ? "missed"
                                                          : "failed"}};
        if (block.result.status.ok()) {
          row.update({{"served", PairText(block.result.served)},
                      {"tier", tier_name(block.result.tier)},
                      {"tokens", block.result.tokens},
                      {"bytes", block.result.payload_bytes}});
          if (check) row.update({{"relative_error_k", ErrorJson(block, 0)}, {"relative_error_v", ErrorJson(block, 1)}});
        } else {
          row["error"] = Message(block.result.status);
        }
        rows.push_back(std::move(row));
      }
      Json document = {{"found", summary.found},
                       {"missed", summary.missed},
                       {"failed", summary.failed},
                       {"bytes", summary.payload_bytes},
                       {"seconds", summary.seconds}};
      if (check) {
        document.update({{"relative_error_k", NumberOrNull(summary.RelativeError(0))},
                         {"relative_error_v", NumberOrNull(summary.RelativeError(1))},
                         {"not_finite_k", summary.NotFinite(0)},
                         {"not_finite_v", summary.NotFinite(1)}});
      }
      document["blocks"] = std::move(rows);
      context.Print(document);
      return;
    }
    std::vector<std::string> heads = {"key", "tier", "served", "tokens", "bytes"};
    if (check) heads.insert(heads.end(), {"error of K", "error of V"});
    heads.push_back("status");
    Table table(heads);
    for (size_t i = 0; i < summary.blocks.size(); ++i) {
      const FetchedBlock& block = summary.blocks[i];
      std::vector<std::string> cells = {KeyText(selection.keys[i]).substr(0, 24)};
      if (block.result.status.ok()) {
        cells.insert(cells.end(), {tier_name(block.result.tier), PairText(block.result.served),
                                   std::to_string(block.result.tokens), FormatBytes(block.result.payload_bytes)});
        if (check) cells.insert(cells.end(), {ErrorText(block, 0), ErrorText(block, 1)});
        cells.push_back("found");
      } else {
        cells.resize(heads.size() - 1, "-");
        cells.push_back(Message(block.result.status));
      }
      table.Row(std::move(cells));
    }
    if (!context.quiet) table.Print();
    std::printf("%llu found, %llu missed, %llu failed; %s in %.3f s, %s\n",
                static_cast<unsigned long long>(summary.found), static_cast<unsigned long long>(summary.missed),
                static_cast<unsigned long long>(summary.failed), FormatBytes(summary.payload_bytes).c_str(),
                summary.seconds, RateText(summary.payload_bytes, summary.seconds).c_str());
    if (check && summary.found == 0) std::printf("relative error: nothing was found to compare\n");
    if (check && summary.found > 0) {
      std::printf("relative error: K %s, V %s\n", NumberText(summary.RelativeError(0)).c_str(),
                  NumberText(summary.RelativeError(1)).c_str());
      std::fputs(LeftOut(summary).c_str(), stdout);
    }
  }

  static Json NumberOrNull(std::optional<double> number) { return number.has_value() ? Json(*number) : Json(nullptr); }
  static std::string NumberText(std::optional<double> number) {
    return number.has_value() ? fmt::format("{:.5f}", *number) : "none";
  }
  static Json ErrorJson(const FetchedBlock& block, int part) {
    return NumberOrNull(block.parts[part].has_value() ? block.parts[part]->RelativeError() : std::nullopt);
  }
  static std::string ErrorText(const FetchedBlock& block, int part) {
    if (!block.parts[part].has_value()) return "-";
    return block.parts[part]->finite() ? NumberText(block.parts[part]->RelativeError()) : "not finite";
  }
  // A line for each part whose error leaves blocks out.
  static std::string LeftOut(const GetSummary& summary) {
    std::string lines;
    for (int part : {0, 1}) {
      uint64_t blocks = summary.NotFinite(part), in_file = 0, came_back = 0;
      if (blocks == 0) continue;
      for (const FetchedBlock& block : summary.blocks) {
        if (!block.parts[part].has_value()) continue;
        in_file += block.parts[part]->not_finite_in_file;
        came_back += block.parts[part]->not_finite_came_back;
      }
      lines += fmt::format(
          "the error of {} leaves out {} of {} blocks, which have NaN or infinities: {} values of the file, {} that "
          "came back so\n",
          part == 0 ? "K" : "V", blocks, summary.found, in_file, came_back);
    }
    return lines;
  }
};

}  // namespace

void AddGet(CLI::App* app, Context* context, int* code) {
  auto command = std::make_shared<GetCommand>();
  CLI::App* get = app->add_subcommand("get", "Fetches blocks, says how precise they came, compares or writes them");
  command->blocks.AddTo(get);
  get->add_option("--as", command->as,
                  "What comes: the type that was put (source), another, or the record as stored (packed) (default: " +
                      command->as + ")")
      ->check(CLI::IsMember({"source", "fp16", "bf16", "fp32", "packed"}))
      ->type_name("TYPE");
  get->add_option(
         "--least", command->least,
         "A coarser block is a miss: exact, int8, int4, int3 or int2, or int8/int4 for K and V apart (default: "
         "none is too coarse)")
      ->type_name("PRECISION");
  get->add_option("--most", command->most,
                  "Finer planes of the ladder are not read and not sent; written as --least (default: exact)")
      ->type_name("PRECISION");
  get->add_option("--layer-first", command->layer_first,
                  "First layer wanted, counted from the namespace's first (default: 0)")
      ->check(WholeNumber<uint32_t>())
      ->type_name("LAYER");
  get->add_option("--layer-count", command->layer_count, "Layers wanted; 0: to the last (default: 0)")
      ->check(WholeNumber<uint32_t>())
      ->type_name("LAYERS");
  get->add_option("--out", command->out, "Write what came to this .safetensors file (default: nowhere)")
      ->type_name("FILE");
  get->add_flag("--check", command->check, "Compare with --file, as FP32, and print the relative error");
  get->callback([=] {
    auto result = command->Run(context);
    *code = result.ok() ? *result : context->Report(result.status());
  });
}

}  // namespace firn::cli
