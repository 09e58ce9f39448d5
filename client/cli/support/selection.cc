#include "client/cli/support/selection.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <set>

#include "base/status.h"
#include "client/cli/support/numbers.h"

namespace firn::cli {

using firnkv::BlockKey;
using firnkv::Digest;

namespace {

constexpr size_t kCandidatesShown = 10;

}  // namespace

void NamespaceOptions::AddTo(CLI::App* app) {
  app->add_option("--ns", fingerprint,
                  "Namespace, by its fingerprint or the beginning of it (default: the only one there is)")
      ->type_name("HEX");
  app->add_option("--model", model, "Namespace, by its model id (default: the only one there is)")->type_name("ID");
}

absl::StatusOr<firnkv::Namespace> NamespaceOptions::Find(firnkv::Client* client) const {
  FIRN_ASSIGN_OR_RETURN(std::vector<firnkv::Namespace> all, client->ListNamespaces());
  std::vector<firnkv::Namespace> matching;
  for (const auto& ns : all) {
    if (!fingerprint.empty() && !ns.fingerprint.Hex().starts_with(fingerprint)) continue;
    if (!model.empty() && ns.facts.model_id != model) continue;
    matching.push_back(ns);
  }
  if (matching.size() == 1) return matching[0];
  if (all.empty()) return NotFound("the daemon knows no namespace yet: put something first");
  std::string asked;
  if (!fingerprint.empty()) asked += fmt::format(" --ns {}", fingerprint);
  if (!model.empty()) asked += fmt::format(" --model {}", model);
  // Those that match, or where none does, what there is.
  const auto& candidates = matching.empty() ? all : matching;
  std::string listing;
  for (size_t i = 0; i < std::min(candidates.size(), kCandidatesShown); ++i) {
    const firnkv::Namespace& ns = candidates[i];
    listing += fmt::format("\n  {}  {} {}", ns.fingerprint.Hex(), ns.facts.model_id, ns.facts.revision);
  }
  if (candidates.size() > kCandidatesShown) {
    listing += fmt::format("\n  and {} more (`firn namespaces` lists all)", candidates.size() - kCandidatesShown);
  }
  if (asked.empty()) return InvalidArgument("there are {} namespaces; name one with --ns:{}", all.size(), listing);
  if (matching.empty()) {
    return InvalidArgument("none of {} namespaces is{}; name one with --ns:{}", all.size(), asked, listing);
  }
  return InvalidArgument("{} of {} namespaces are{}; name one with --ns:{}", matching.size(), all.size(), asked,
                         listing);
}

void FileOptions::AddTo(CLI::App* app, bool required) {
  auto* option = app->add_option(required ? "file" : "--file", path,
                                 required ? "A .safetensors or .npy file of K and V (docs/cli.md, Files)"
                                          : "The blocks of this .safetensors or .npy file, put with the same options "
                                            "as here (docs/cli.md, Files)")
                     ->type_name("FILE");
  if (required) option->required();
  app->add_option("--tokens", tokens_path,
                  "Token ids of the file, a .npy file, to key blocks by (default: the file's `tokens` or `input_ids`; "
                  "without them keys are made of the content)")
      ->type_name("FILE");
  app->add_option("--block-tokens", block_tokens,
                  fmt::format("Tokens of a block, 1 to 65536 (default: {})", block_tokens))
      ->check(WholeNumber<uint32_t>(1, 65536))
      ->type_name("TOKENS");
  if (required) {
    app->add_option("--model", model, "Model id of the namespace (default: the file's name without its ending)")
        ->type_name("ID");
  }
  app->add_option("--revision", revision, "Revision of the model's weights, part of the namespace (default: none)")
      ->type_name("TEXT");
  app->add_flag("--pre-rope", pre_rope, "Take the keys before the rotary embedding (LAYER.k_pre_rope)");
  app->add_option(
         "--extra", extras,
         "Goes into every key that is made of token ids: adapter, salt; repeatable, order matters; refused where there "
         "are no token ids (default: none)")
      ->allow_extra_args(false)
      ->type_name("TEXT");
}

absl::StatusOr<std::shared_ptr<const KvFile>> FileOptions::Open() const {
  FIRN_ASSIGN_OR_RETURN(std::shared_ptr<const KvFile> file,
                        KvFile::Open(path, {.tokens_path = tokens_path, .k_suffix = pre_rope ? "k_pre_rope" : "k"}));
  if (extras.empty() || !file->token_ids().empty()) return file;
  return InvalidArgument(
      "--extra {}: goes into keys of token ids alone, and {} has none, so that its keys are made of the content; "
      "--tokens gives ids",
      extras[0], path);
}

firnkv::NamespaceFacts FileOptions::FactsOf(const KvFile& file) const {
  firnkv::NamespaceFacts facts = file.facts();
  facts.model_id = model.empty() ? std::filesystem::path(path).stem().string() : model;
  if (!revision.empty()) facts.revision = facts.revision.empty() ? revision : revision + ", " + facts.revision;
  facts.block_tokens = block_tokens;
  return facts;
}

std::vector<FileBlock> FileOptions::Blocks(const KvFile& file, const firnkv::Namespace& ns) const {
  std::vector<std::string_view> views(extras.begin(), extras.end());
  std::vector<Digest> keys;
  if (!file.token_ids().empty()) keys = ns.Keys(file.token_ids(), views, /*with_tail=*/true);
  std::vector<FileBlock> blocks;
  for (uint32_t first = 0; first < file.tokens(); first += ns.facts.block_tokens) {
    FileBlock block{
        .key = {}, .parent = {}, .first = first, .count = std::min(ns.facts.block_tokens, file.tokens() - first)};
    block.key = keys.empty() ? BlockKey::Opaque(file.ContentKey(first, block.count)) : BlockKey(keys[blocks.size()]);
    if (!blocks.empty()) block.parent = blocks.back().key;
    blocks.push_back(std::move(block));
  }
  return blocks;
}

void BlockOptions::AddTo(CLI::App* app) {
  ns.AddTo(app);
  file.AddTo(app, /*required=*/false);
  app->add_option("--key", hex, "A block by its key, 64 hexadecimal digits; repeatable")
      ->allow_extra_args(false)
      ->type_name("HEX");
  app->add_option("--opaque", opaque, "A block by a caller's own key, as text; repeatable")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  app->add_flag("--all", all, "All blocks of the namespace");
  app->footer("Name blocks in one way: --file, --key and --opaque, or --all.");
}

absl::StatusOr<std::vector<firnkv::BlockInfo>> ListAll(firnkv::Client* client, const firnkv::Namespace& ns) {
  std::vector<firnkv::BlockInfo> out;
  std::optional<Digest> after;
  while (true) {
    FIRN_ASSIGN_OR_RETURN(std::vector<firnkv::BlockInfo> page, client->List(ns, after));
    if (page.empty()) return out;
    after = page.back().key;
    out.insert(out.end(), page.begin(), page.end());
  }
}

// The namespace that a put of these facts made. Asking does not make one.
absl::StatusOr<firnkv::Namespace> FindByFacts(firnkv::Client* client, const firnkv::NamespaceFacts& facts) {
  FIRN_ASSIGN_OR_RETURN(std::vector<firnkv::Namespace> all, client->ListNamespaces());
  for (firnkv::Namespace& ns : all) {
    if (ns.facts == facts) return std::move(ns);
  }
  return NotFound(
      "no namespace has this file's facts (model {}, {} layers, {} KV heads, blocks of {} tokens{}): put the file "
      "first, "
      "or give the options that it was put with",
      facts.model_id, facts.layers(), facts.kv_heads, facts.block_tokens, facts.k_pre_rope ? ", --pre-rope" : "");
}

absl::StatusOr<Selection> BlockOptions::Select(firnkv::Client* client) const {
  int ways = !file.path.empty() + (!hex.empty() || !opaque.empty()) + all;
  if (ways != 1)
    return InvalidArgument("name blocks in one way: --file, --key and --opaque, or --all ({} given)", ways);
  Selection out;
  if (!file.path.empty()) {
    FileOptions named = file;
    named.model = ns.model;
    FIRN_ASSIGN_OR_RETURN(std::shared_ptr<const KvFile> kv, named.Open());
    FIRN_ASSIGN_OR_RETURN(out.ns, FindByFacts(client, named.FactsOf(*kv)));
    for (const FileBlock& block : named.Blocks(*kv, out.ns)) out.keys.push_back(block.key);
    return out;
  }
  FIRN_ASSIGN_OR_RETURN(out.ns, ns.Find(client));
  std::string unreadable;
  for (const std::string& text : hex) {
    auto digest = Digest::FromHex(text);
    if (digest.has_value()) out.keys.push_back(*digest);
    if (!digest.has_value()) unreadable += (unreadable.empty() ? "" : ", ") + text;
  }
  if (!unreadable.empty()) return InvalidArgument("--key takes 64 hexadecimal digits; these are not: {}", unreadable);
  for (const std::string& text : opaque) out.keys.push_back(BlockKey::Opaque(text));
  if (!all) return out;
  FIRN_ASSIGN_OR_RETURN(std::vector<firnkv::BlockInfo> blocks, ListAll(client, out.ns));
  std::set<Digest> seen;  // A block of several shards is listed once a shard.
  for (const auto& block : blocks) {
    if (seen.insert(block.key).second) out.keys.push_back(block.key);
  }
  return out;
}

}  // namespace firn::cli
