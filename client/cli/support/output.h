// Tables and progress lines for people. Threads: one.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "firnkv/key.h"
#include "firnkv/types.h"

namespace firn::cli {

// Columns as wide as their widest cell; cells that start with a digit are set to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> heads);
  void Row(std::vector<std::string> cells);
  void Print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// One line on stderr that is rewritten in place, at most ten times a second, on terminals only.
class Progress {
 public:
  // `unit` names what is counted.
  Progress(std::string what, uint64_t total_blocks, bool enabled, std::string unit = "blocks");
  ~Progress();
  void Add(uint64_t blocks, uint64_t bytes);
  double seconds() const;

 private:
  const std::string what_, unit_;
  const uint64_t total_blocks_;
  const bool enabled_;
  const std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point shown_;
  uint64_t blocks_ = 0, bytes_ = 0;
};

// "int8", or "int8/int4" where K and V differ.
std::string PairText(firnkv::PrecisionPair pair);
// The digest in hexadecimal digits, or what is wrong about the key.
std::string KeyText(const firnkv::BlockKey& key);
// "int4" or "int8/int4".
bool ParsePair(const std::string& text, firnkv::PrecisionPair* out);
// What ParsePair takes, and the error for anything else.
inline constexpr std::string_view kPairsAllowed = "exact, int8, int4, int3, int2, or K and V apart, as in int8/int4";
absl::Status NotAPrecision(std::string_view option, std::string_view text);
std::string RateText(uint64_t bytes, double seconds);
std::string ShortHex(const firnkv::Digest& digest);

}  // namespace firn::cli
