// How a benchmark reports: a line a figure for people, `ratio NAME OURS REFERENCE RATIO` at the end, and --json FILE
// with all of it.
//
// OURS and REFERENCE are rates (larger is better) unless `lower_is_better`; RATIO is OURS / REFERENCE either way.
// Threads: one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace firn::bench {

struct Figure {
  std::string name;
  double ours = 0;
  double reference = 0;
  std::string unit;
  std::string note;  // What was measured against what.
};

class Report {
 public:
  explicit Report(std::string program) : program_(std::move(program)) {}
  // A value without a reference: shown and kept, no ratio line.
  void Value(const std::string& name, double value, const std::string& unit, const std::string& note);
  void Ratio(Figure figure);
  // Prints the ratio lines; writes JSON where `json_path` is not empty.
  absl::Status Finish(const std::string& json_path) const;

 private:
  const std::string program_;
  std::vector<Figure> figures_, values_;
};

double Median(std::vector<double> values);
// `share` in [0, 1]; the nearest rank.
double Percentile(std::vector<double> values, double share);

}  // namespace firn::bench
