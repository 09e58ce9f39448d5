// Blocks whose values follow from their number, so that whoever reads one can tell whether the bytes are right.
//
// Threads: values. Values are FP16: smooth along channels with noise of the block's own, so that another block's bytes,
// or a mixture, are far outside the error of any precision.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "firnkv/client.h"

namespace firn {

struct KnownModel {
  std::string name;
  uint32_t layers = 2, heads = 2, width = 64, tokens = 16;
  firnkv::NamespaceFacts Facts() const;
  size_t part_values() const { return static_cast<size_t>(layers) * heads * tokens * width; }
};

// Blocks of 16 KiB, which are packed; of 2 MiB, whose planes have segments of their own.
KnownModel SmallModel();
KnownModel LargeModel();

firnkv::BlockKey KnownKey(uint64_t number);

// K then V of block `number`, FP16, canonical.
std::vector<uint16_t> KnownValues(const KnownModel& model, uint64_t number);

// ||x - x^|| / ||x|| against what block `number` holds. About 1.4 for another block's values.
double KnownError(const KnownModel& model, uint64_t number, std::span<const uint16_t> values);

// The same for a block of any shape, which has `count` values in all.
std::vector<uint16_t> KnownValues(size_t count, uint64_t number);
double RelativeError(std::span<const uint16_t> expected, std::span<const uint16_t> values);

// The largest error that a class may have on these values.
double ErrorLimit(firnkv::Precision precision);

// Puts block `number`; the result of its one item.
firnkv::PutResult PutKnown(firnkv::Client& client, const firnkv::Namespace& ns, const KnownModel& model,
                           uint64_t number, const firnkv::PutOptions& options = {});

// Gets block `number` as FP16. `*error` is its error where the status is OK.
firnkv::GetResult GetKnown(firnkv::Client& client, const firnkv::Namespace& ns, const KnownModel& model,
                           uint64_t number, double* error, const firnkv::GetOptions& options = {});

}  // namespace firn
