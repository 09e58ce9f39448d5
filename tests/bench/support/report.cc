#include "tests/bench/support/report.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/status.h"

namespace firn::bench {

void Report::Value(const std::string& name, double value, const std::string& unit, const std::string& note) {
  std::printf("%-36s %12.3f %-6s %s\n", name.c_str(), value, unit.c_str(), note.c_str());
  std::fflush(stdout);
  values_.push_back({name, value, 0, unit, note});
}

void Report::Ratio(Figure figure) {
  std::printf("%-36s %12.3f %-6s against %.3f: %s\n", figure.name.c_str(), figure.ours, figure.unit.c_str(),
              figure.reference, figure.note.c_str());
  std::fflush(stdout);
  figures_.push_back(std::move(figure));
}

absl::Status Report::Finish(const std::string& json_path) const {
  using Json = nlohmann::ordered_json;
  Json document = {{"program", program_}, {"values", Json::array()}, {"ratios", Json::array()}};
  for (const Figure& value : values_) {
    document["values"].push_back(
        {{"name", value.name}, {"value", value.ours}, {"unit", value.unit}, {"note", value.note}});
  }
  for (const Figure& figure : figures_) {
    double ratio = figure.reference == 0 ? 0 : figure.ours / figure.reference;
    std::printf("ratio %s %.4g %.4g %.3f\n", figure.name.c_str(), figure.ours, figure.reference, ratio);
    document["ratios"].push_back({{"name", figure.name},
                                  {"ours", figure.ours},
                                  {"reference", figure.reference},
                                  {"ratio", ratio},
                                  {"unit", figure.unit},
                                  {"note", figure.note}});
  }
  if (json_path.empty()) return absl::OkStatus();
  std::ofstream out(json_path);
  out << document.dump(2) << "\n";
  out.close();
  return out ? absl::OkStatus() : ErrnoStatus(errno, "write " + json_path);
}

double Percentile(std::vector<double> values, double share) {
  FIRN_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::min(values.size(), std::max<size_t>(rank, 1)) - 1];
}

double Median(std::vector<double> values) { return Percentile(std::move(values), 0.5); }

}  // namespace firn::bench
