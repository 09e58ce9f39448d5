#include "client/cli/support/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "base/status.h"
#include "base/units.h"

namespace firn::cli {

Table::Table(std::vector<std::string> heads) { rows_.push_back(std::move(heads)); }

void Table::Row(std::vector<std::string> cells) {
  cells.resize(rows_[0].size());
  rows_.push_back(std::move(cells));
}

void Table::Print() const {
  std::vector<size_t> widths(rows_[0].size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      bool number = !row[i].empty() && std::isdigit(static_cast<unsigned char>(row[i][0]));
      line += number ? fmt::format("{:>{}}  ", row[i], widths[i]) : fmt::format("{:<{}}  ", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    std::printf("%s\n", line.c_str());
  }
}

Progress::Progress(std::string what, uint64_t total_blocks, bool enabled, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      total_blocks_(total_blocks),
      enabled_(enabled && isatty(STDERR_FILENO) != 0),
      start_(std::chrono::steady_clock::now()),
      shown_(start_) {}

Progress::~Progress() {
  if (enabled_) std::fprintf(stderr, "\r\033[K");
}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Progress::Add(uint64_t blocks, uint64_t bytes) {
  blocks_ += blocks;
  bytes_ += bytes;
  auto now = std::chrono::steady_clock::now();
  if (!enabled_ || now - shown_ < std::chrono::milliseconds(100)) return;
  shown_ = now;
  std::string line = fmt::format("{} {}/{} {}", what_, blocks_, total_blocks_, unit_);
  if (bytes_ > 0) line += fmt::format(", {}, {}", FormatBytes(bytes_), RateText(bytes_, seconds()));
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
}

std::string PairText(firnkv::PrecisionPair pair) {
  std::string k(firnkv::PrecisionName(pair.k));
  if (pair.k == pair.v) return k;
  return k + "/" + std::string(firnkv::PrecisionName(pair.v));
}

std::string KeyText(const firnkv::BlockKey& key) {
  auto digest = key.ToDigest();
  return digest.ok() ? digest->Hex() : fmt::format("opaque key of {} bytes", key.opaque().size());
}

bool ParsePair(const std::string& text, firnkv::PrecisionPair* out) {
  size_t slash = text.find('/');
  auto k = firnkv::PrecisionFromName(text.substr(0, slash));
  auto v = slash == std::string::npos ? k : firnkv::PrecisionFromName(text.substr(slash + 1));
  if (!k.has_value() || !v.has_value()) return false;
  *out = {*k, *v};
  return true;
}

absl::Status NotAPrecision(std::string_view option, std::string_view text) {
  return InvalidArgument("{} {} is not a precision; allowed: {}", option, text, kPairsAllowed);
}

std::string RateText(uint64_t bytes, double seconds) {
  if (seconds <= 0) return "-";
  return fmt::format("{:.2f} GB/s", static_cast<double>(bytes) / seconds / 1e9);
}

std::string ShortHex(const firnkv::Digest& digest) { return digest.Hex().substr(0, 16); }

}  // namespace firn::cli
