// ls, stat, namespaces, keys: what is there.

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>

#include "base/status.h"
#include "base/units.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/numbers.h"
#include "client/cli/support/output.h"
#include "client/cli/support/selection.h"

namespace firn::cli {
namespace {

// The classes that were measured, finest first.
std::vector<std::pair<const char*, float>> Measured(const firnkv::PartErrors& errors) {
  std::vector<std::pair<const char*, float>> out = {
      {"int8", errors.int8}, {"int4", errors.int4}, {"int3", errors.int3}, {"int2", errors.int2}};
  std::erase_if(out, [](const auto& one) { return std::isnan(one.second); });
  return out;
}

Json ErrorsJson(const firnkv::PartErrors& errors) {
  Json out = Json::object();
  for (auto [name, value] : Measured(errors)) out[name] = value;
  return out;
}

class TierNames {
 public:
  static absl::StatusOr<TierNames> From(firnkv::Client* client) {
    FIRN_ASSIGN_OR_RETURN(firnkv::Capabilities capabilities, client->GetCapabilities());
    TierNames names;
    for (const auto& tier : capabilities.tiers) names.names_.push_back(tier.name);
    return names;
  }
  std::string operator()(uint32_t tier) const { return tier < names_.size() ? names_[tier] : std::to_string(tier); }

 private:
  std::vector<std::string> names_;
};

Json BlockJson(const firnkv::BlockInfo& block, const TierNames& tier_name) {
  Json copies = Json::array();
  for (const auto& copy : block.copies) {
    copies.push_back({{"tier", tier_name(copy.tier)}, {"precision", PairText(copy.served)}, {"bytes", copy.bytes}});
  }
  Json out = {{"key", block.key.Hex()},
              {"shard", block.shard},
              {"first_token", block.first_token},
              {"tokens", block.tokens},
              {"generation", block.generation},
              {"pins", block.pins},
              {"expires_unix_ms", block.expires_unix_ms},
              {"copies", copies},
              {"k_errors", ErrorsJson(block.k_errors)},
              {"v_errors", ErrorsJson(block.v_errors)}};
  if (block.parent.has_value()) out["parent"] = block.parent->Hex();
  return out;
}

std::string CopiesText(const firnkv::BlockInfo& block, const TierNames& tier_name) {
  std::string text;
  for (const auto& copy : block.copies) {
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", tier_name(copy.tier), PairText(copy.served),
                        FormatBytes(copy.bytes));
  }
  return text;
}

absl::StatusOr<int> List(Context* context, const NamespaceOptions& ns_options, uint64_t limit) {
  FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
  FIRN_ASSIGN_OR_RETURN(TierNames tier_name, TierNames::From(client));
  FIRN_ASSIGN_OR_RETURN(firnkv::Namespace ns, ns_options.Find(client));
  FIRN_ASSIGN_OR_RETURN(std::vector<firnkv::BlockInfo> blocks, ListAll(client, ns));
  if (context->json) {
    Json rows = Json::array();
    for (const auto& block : blocks) {
      if (limit == 0 || rows.size() < limit) rows.push_back(BlockJson(block, tier_name));
    }
    context->Print({{"namespace", ns.fingerprint.Hex()}, {"count", blocks.size()}, {"blocks", rows}});
    return kExitOk;
  }
  Table table({"key", "parent", "token", "tokens", "pins", "copies"});
  for (size_t i = 0; i < blocks.size() && (limit == 0 || i < limit); ++i) {
    const auto& block = blocks[i];
    table.Row({ShortHex(block.key), block.parent.has_value() ? ShortHex(*block.parent) : "-",
               std::to_string(block.first_token), std::to_string(block.tokens), std::to_string(block.pins),
               CopiesText(block, tier_name)});
  }
  table.Print();
  std::printf("%zu blocks in %s (%s)\n", blocks.size(), ns.facts.model_id.c_str(), ShortHex(ns.fingerprint).c_str());
  return kExitOk;
}

std::string ErrorsText(const firnkv::PartErrors& errors) {
  std::string text;
  for (auto [name, value] : Measured(errors)) {
    text += fmt::format("{}{} {:.5f}", text.empty() ? "" : ", ", name, value);
  }
  return text.empty() ? "not measured" : text;
}

absl::StatusOr<int> Describe(Context* context, const BlockOptions& options) {
  FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
  FIRN_ASSIGN_OR_RETURN(TierNames tier_name, TierNames::From(client));
  FIRN_ASSIGN_OR_RETURN(Selection selection, options.Select(client));
  FIRN_ASSIGN_OR_RETURN(auto answers, client->Describe(selection.ns, selection.keys));
  int code = kExitOk;
  Json rows = Json::array();
  for (size_t i = 0; i < answers.size(); ++i) {
    std::string key = KeyText(selection.keys[i]);
    if (!answers[i].status.ok()) {
      code = kExitSome;
      rows.push_back({{"key", key}, {"error", Message(answers[i].status)}});
      if (!context->json) std::printf("%s: %s\n", key.c_str(), Message(answers[i].status).c_str());
    }
    for (const auto& block : answers[i].shards) {
      rows.push_back(BlockJson(block, tier_name));
      if (context->json) continue;
      std::printf("%s shard %u\n  tokens %u to %u, generation %llu, %u pins%s\n  copies: %s\n", key.c_str(),
                  block.shard, block.first_token, block.first_token + block.tokens - 1,
                  static_cast<unsigned long long>(block.generation), block.pins,
                  block.expires_unix_ms == 0 ? "" : ", expires", CopiesText(block, tier_name).c_str());
      std::printf("  relative error of K: %s\n  relative error of V: %s\n", ErrorsText(block.k_errors).c_str(),
                  ErrorsText(block.v_errors).c_str());
    }
  }
  if (context->json) context->Print({{"blocks", rows}});
  return code;
}

absl::StatusOr<int> Exists(Context* context, const BlockOptions& options, const std::string& least) {
  firnkv::PrecisionPair demand;
  if (!least.empty() && !ParsePair(least, &demand)) return NotAPrecision("--least", least);
  FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
  FIRN_ASSIGN_OR_RETURN(TierNames tier_name, TierNames::From(client));
  FIRN_ASSIGN_OR_RETURN(Selection selection, options.Select(client));
  FIRN_ASSIGN_OR_RETURN(auto blocks, client->Exists(selection.ns, selection.keys, demand));
  int code = kExitOk;
  Json rows = Json::array();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const firnkv::Located& block = blocks[i];
    std::string key = KeyText(selection.keys[i]), text = "absent";
    Json row = {{"key", key}, {"found", block.found}};
    if (!block.status.ok()) {
      text = Message(block.status);
      row["error"] = text;
    } else if (block.found) {
      row["precision"] = PairText(block.served);
      row["tier"] = tier_name(block.tier);
      row["tokens"] = block.tokens;
      text = fmt::format("{} in {}, {} tokens", PairText(block.served), tier_name(block.tier), block.tokens);
    }
    if (!block.found) code = kExitSome;
    rows.push_back(std::move(row));
    if (!context->json) std::printf("%s: %s\n", key.c_str(), text.c_str());
  }
  if (context->json) context->Print({{"blocks", rows}});
  return code;
}

// "0-31", both among them, as in plans.
std::string LayersText(const firnkv::NamespaceFacts& facts) {
  uint32_t last = facts.layer_last - 1;
  return facts.layer_first == last ? std::to_string(last) : fmt::format("{}-{}", facts.layer_first, last);
}

absl::StatusOr<int> Namespaces(Context* context) {
  FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
  FIRN_ASSIGN_OR_RETURN(auto all, client->ListNamespaces());
  Json rows = Json::array();
  Table table({"namespace", "model", "revision", "dtype", "layers", "heads", "K", "V", "tokens", "block", "shards"});
  for (const auto& ns : all) {
    const auto& facts = ns.facts;
    rows.push_back({{"namespace", ns.fingerprint.Hex()},
                    {"model_fingerprint", ns.model_fingerprint.Hex()},
                    {"model", facts.model_id},
                    {"revision", facts.revision},
                    {"dtype", firnkv::DTypeName(facts.dtype)},
                    {"layer_first", facts.layer_first},
                    {"layer_last", facts.layer_last},
                    {"kv_heads", facts.kv_heads},
                    {"k_width", facts.k_width},
                    {"v_width", facts.v_width},
                    {"block_tokens", facts.block_tokens},
                    {"block_bytes", ns.block_bytes},
                    {"shards", facts.shards}});
    table.Row({ShortHex(ns.fingerprint), facts.model_id, facts.revision.empty() ? "-" : facts.revision,
               std::string(firnkv::DTypeName(facts.dtype)), LayersText(facts), std::to_string(facts.kv_heads),
               std::to_string(facts.k_width), std::to_string(facts.v_width), std::to_string(facts.block_tokens),
               FormatBytes(ns.block_bytes), std::to_string(facts.shards)});
  }
  context->json ? context->Print({{"namespaces", rows}}) : table.Print();
  return kExitOk;
}

absl::StatusOr<int> Keys(Context* context, const FileOptions& file) {
  FIRN_ASSIGN_OR_RETURN(std::shared_ptr<const KvFile> kv, file.Open());
  FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
  // Registering is how the daemon tells the model's fingerprint; it makes the namespace known and stores nothing else.
  FIRN_ASSIGN_OR_RETURN(firnkv::Namespace ns, client->RegisterNamespace(file.FactsOf(*kv)));
  Json rows = Json::array();
  for (const FileBlock& block : file.Blocks(*kv, ns)) {
    FIRN_ASSIGN_OR_RETURN(firnkv::Digest digest, block.key.ToDigest());
    rows.push_back({{"key", digest.Hex()}, {"first_token", block.first}, {"tokens", block.count}});
    if (!context->json) std::printf("%s %u %u\n", digest.Hex().c_str(), block.first, block.count);
  }
  if (context->json) {
    context->Print({{"namespace", ns.fingerprint.Hex()},
                    {"model_fingerprint", ns.model_fingerprint.Hex()},
                    {"keys_by", kv->token_ids().empty() ? "content" : "tokens"},
                    {"keys", rows}});
  }
  return kExitOk;
}

}  // namespace

void AddInspect(CLI::App* app, Context* context, int* code) {
  auto finish = [=](absl::StatusOr<int> result) { *code = result.ok() ? *result : context->Report(result.status()); };
  auto ns = std::make_shared<NamespaceOptions>();
  auto limit = std::make_shared<uint64_t>(0);
  CLI::App* ls = app->add_subcommand("ls", "Lists the blocks of a namespace, in key order");
  ns->AddTo(ls);
  ls->add_option("--limit", *limit, "Show at most so many; 0: all (default: 0)")
      ->check(WholeNumber<uint64_t>())
      ->type_name("BLOCKS");
  ls->callback([=] { finish(List(context, *ns, *limit)); });

  auto blocks = std::make_shared<BlockOptions>();
  CLI::App* stat = app->add_subcommand(
      "stat", "Everything about some blocks: copies, precision, relative error of each class, pins");
  blocks->AddTo(stat);
  stat->callback([=] { finish(Describe(context, *blocks)); });

  auto asked = std::make_shared<BlockOptions>();
  auto least = std::make_shared<std::string>();
  CLI::App* exists =
      app->add_subcommand("exists", "Whether blocks are there, how precise and where; does not count as use of them");
  asked->AddTo(exists);
  exists
      ->add_option(
          "--least", *least,
          "Blocks that are coarser count as absent: exact, int8, int4, int3 or int2, or int8/int4 for K and V apart "
          "(default: none is too coarse)")
      ->type_name("PRECISION");
  exists->callback([=] { finish(Exists(context, *asked, *least)); });

  app->add_subcommand("namespaces", "Lists the namespaces")->callback([=] { finish(Namespaces(context)); });
}

void AddKeys(CLI::App* app, Context* context, int* code) {
  auto file = std::make_shared<FileOptions>();
  CLI::App* keys = app->add_subcommand("keys", "Prints the keys of a file's blocks: key, first token, tokens");
  file->AddTo(keys, /*required=*/true);
  keys->callback([=] {
    auto result = Keys(context, *file);
    *code = result.ok() ? *result : context->Report(result.status());
  });
}

}  // namespace firn::cli
