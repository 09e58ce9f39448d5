// Which namespace and which blocks a command is about, from its options.
//
// Blocks are named by a file (its blocks, by token ids or by content), by --key (64 hexadecimal digits), by --opaque,
// or are all blocks of the namespace. The namespace is named by --ns, by --model, or is the only one there is. Threads:
// one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/support/context.h"
#include "client/cli/support/kv_file.h"

namespace CLI {
class App;
}

namespace firn::cli {

// One block of a file.
struct FileBlock {
  firnkv::BlockKey key;
  std::optional<firnkv::BlockKey> parent;
  uint32_t first = 0;
  uint32_t count = 0;
  std::vector<float> importance = {};  // One value a token, or none.
};

struct NamespaceOptions {
  std::string fingerprint, model;
  void AddTo(CLI::App* app);
  // InvalidArgument lists what there is where the choice is not clear.
  absl::StatusOr<firnkv::Namespace> Find(firnkv::Client* client) const;
};

struct FileOptions {
  std::string path, tokens_path, model, revision;
  uint32_t block_tokens = 64;
  bool pre_rope = false;
  std::vector<std::string> extras;
  void AddTo(CLI::App* app, bool required);
  absl::StatusOr<std::shared_ptr<const KvFile>> Open() const;
  // The file's facts with this command's model, revision and block size.
  firnkv::NamespaceFacts FactsOf(const KvFile& file) const;
  std::vector<FileBlock> Blocks(const KvFile& file, const firnkv::Namespace& ns) const;
};

struct Selection {
  firnkv::Namespace ns;
  std::vector<firnkv::BlockKey> keys;
};

struct BlockOptions {
  NamespaceOptions ns;
  FileOptions file;
  std::vector<std::string> hex, opaque;
  bool all = false;
  void AddTo(CLI::App* app);
  absl::StatusOr<Selection> Select(firnkv::Client* client) const;
};

// Every block of a namespace, page by page.
absl::StatusOr<std::vector<firnkv::BlockInfo>> ListAll(firnkv::Client* client, const firnkv::Namespace& ns);

}  // namespace firn::cli
