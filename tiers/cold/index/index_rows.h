// Keys and values of the location index (docs/formats/index.md).
//
//   'L' sequence          -> where a record's extents are, and its note        'F' kind NUL name -> a fact and where it
//   is logged 'S' segment           -> a segment that is sealed and fully indexed        'T' segment sequence -> a copy
//   forgotten, of a segment 'N' sequence          -> a namespace forgotten up to that sequence         'M' name -> the
//   store's own numbers
// Numbers in keys are big-endian, so that they sort; in values little-endian. A location may name segments that are
// gone: they are never used again, so those extents are simply not there. That is how reclaiming degrades without
// rewriting a row. Threads: pure functions. Errors: DataLoss for values that do not parse.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tiers/cold/log/extent_format.h"

namespace firn {

struct RowExtent {
  ExtentPlace place;
  ExtentShape shape;
};

struct RecordRow {
  uint64_t sequence = 0;
  RecordNote note;
  std::vector<RowExtent> extents;  // The one with the record header first.
};

struct FactRow {
  FactPayload fact;
  uint64_t sequence = 0;
  ExtentPlace place;
};

struct NamespaceForgottenRow {
  uint64_t sequence = 0;  // Copies of it up to this one are gone.
  Digest namespace_fingerprint;
  uint32_t segment_bound = 0;  // Needed while segments below this id exist.
};

std::string RecordKey(uint64_t sequence);
std::string SegmentKey(uint32_t segment);
std::string TombstonePrefix(uint32_t segment);
std::string TombstoneKey(uint32_t segment, uint64_t sequence);
std::string UnloggedKey(uint64_t sequence);
std::string FactKey(const std::string& kind, const std::string& name);
std::string NamespaceKey(uint64_t sequence);
std::string NumberKey(std::string_view name);

std::string RecordValue(const RecordRow& row);
absl::StatusOr<RecordRow> ParseRecordRow(std::string_view key, std::string_view value);
// Only the sequence and the identity: enough to tell copies of one block apart, at a fraction of the cost.
absl::StatusOr<std::pair<uint64_t, Identity>> ParseRecordName(std::string_view key, std::string_view value);
std::string FactValue(const FactRow& row);
absl::StatusOr<FactRow> ParseFactRow(std::string_view value);
std::string NamespaceValue(const NamespaceForgottenRow& row);
absl::StatusOr<NamespaceForgottenRow> ParseNamespaceRow(std::string_view value);
std::string NumberValue(uint64_t number);
absl::StatusOr<uint64_t> ParseNumber(std::string_view value);
// The big-endian number behind a one-letter prefix.
absl::StatusOr<uint32_t> ParseSegmentKey(std::string_view key);
struct TombstoneKeyParts {
  uint32_t segment = 0;
  uint64_t sequence = 0;
};
absl::StatusOr<TombstoneKeyParts> ParseTombstoneKey(std::string_view key);

}  // namespace firn
