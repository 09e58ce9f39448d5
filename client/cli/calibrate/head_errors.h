// The errors of heads at each precision as one table: measured or given, written and read, ranked, and spent on.
//
// Files: errors are JSON (docs/calibration.md), which is also what a user's own sensitivities are given as, the
// divergence of a whole model with one head coded, for instance; a ranking is CSV `layer,k_importance,v_importance`,
// what KVmix's preset reads. Threads: pure functions. Errors: InvalidArgument names value and place.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "client/cli/calibrate/calibration.h"
#include "codecs/allocate/allocation.h"

namespace firn::cli {

enum class ErrorMeasure : uint8_t {
  kOutput,     // Mean squared error of attention outputs, behind the output projection where it is captured.
  kRelative,   // The same, as a share of the head's mean squared output.
  kAttention,  // KL divergence of attention, of keys alone: not for allocation.
  kGradient,   // Diagonal Fisher: gradients squared times errors squared, a token.
  kGiven,      // By the user.
};
std::string_view MeasureName(ErrorMeasure measure);

struct HeadErrorTable {
  ErrorMeasure measure = ErrorMeasure::kOutput;
  std::vector<uint32_t> layers;  // Their numbers in the captures.
  uint32_t heads = 0;
  std::vector<PrecisionClass> classes;        // Finest first.
  std::array<std::vector<double>, 2> errors;  // By Part, [layer][head][class].
  double At(Part part, size_t layer, size_t head, size_t c) const {
    return errors[static_cast<size_t>(part)][(layer * heads + head) * classes.size() + c];
  }
};

// InvalidArgument where the captures do not have what the measure needs.
absl::StatusOr<HeadErrorTable> MeasuredErrors(const CalibrationResult& result, const CalibrationSettings& settings,
                                              ErrorMeasure measure);

std::string PrintErrors(const HeadErrorTable& table);
// Of these layers, heads and classes; classes that the file has beyond them are let be.
absl::StatusOr<HeadErrorTable> ParseErrors(const std::string& path, const std::string& json,
                                           const std::vector<uint32_t>& layers, uint32_t heads,
                                           const std::vector<PrecisionClass>& classes);

// The importance of a layer's K or V: its heads' errors at the coarsest class, as a share of all layers', K and V
// together.
std::array<std::vector<double>, 2> LayerImportance(const HeadErrorTable& table);
std::string PrintRanking(const HeadErrorTable& table);

// What a head's block costs, by Part and class, and how many values it has.
struct HeadCosts {
  std::array<std::vector<uint64_t>, 2> bytes;
  std::array<uint64_t, 2> values{};
};

// Of blocks of a full length. `keys` is what balanced keys are coded with.
absl::StatusOr<HeadCosts> CostsOf(const Capture& capture, const CalibrationSettings& settings, const Artifact& keys);

// A ladder and the values that share a scale (0: its own way), and the bits a value that it takes where all are at 8
// bits.
struct LadderAt8Bits {
  LadderOrIntegers code = LadderOrIntegers::kTrellis;
  uint32_t group = 0;
  double bits = 0;
};
// Those that are more precise at 8 bits than the trellis, which is made for few: the most precise first.
absl::StatusOr<std::vector<LadderAt8Bits>> LaddersAt8Bits(const Capture& capture, const CalibrationSettings& settings,
                                                          const Artifact& keys);

struct BitAllocation {
  double budget = 0;  // What it may have.
  double bits = 0;    // A value, metadata included.
  double error = 0;
  bool exact = true;                // Whether it is the optimum of the table.
  std::array<ClassMap, 2> classes;  // By Part, [layer][head].
};
// The classes that leave the least error at `bits` bits a value.
absl::StatusOr<BitAllocation> SpendBits(const HeadErrorTable& table, const HeadCosts& costs, double bits);

}  // namespace firn::cli
