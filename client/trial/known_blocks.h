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
// Blocks of 4 KiB, 128 KiB and 1 MiB, which take different ways through the tiers: what `firn chaos` uses.
const std::vector<KnownModel>& ChaosModels();

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

// max |x - x^| over all values: one that is wrong shows, which the error of a whole block hides. Infinite for another
// number of values, and for what is no number.
double LargestDifference(std::span<const uint16_t> expected, std::span<const uint16_t> values);
// The largest difference that a class may have on these values, which are within 1.4.
double DifferenceLimit(firnkv::Precision precision);

// Puts block `number`; the result of its one item.
firnkv::PutResult PutKnown(firnkv::Client& client, const firnkv::Namespace& ns, const KnownModel& model,
                           uint64_t number, const firnkv::PutOptions& options = {});

// Gets block `number` as FP16. `*error` is its error where the status is OK.
firnkv::GetResult GetKnown(firnkv::Client& client, const firnkv::Namespace& ns, const KnownModel& model,
                           uint64_t number, double* error, const firnkv::GetOptions& options = {});
// The same to memory of the caller's: 2 * model.part_values() values.
firnkv::GetResult GetKnownValues(firnkv::Client& client, const firnkv::Namespace& ns, const KnownModel& model,
                                 uint64_t number, std::span<uint16_t> values, const firnkv::GetOptions& options = {});

}  // namespace firn
