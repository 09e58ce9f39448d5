// Rankings of layers: CSV to the classes that KVmix gives them.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>

#include "base/status.h"
#include "client/cpp/plan/plan_words.h"
#include "firnkv/plan_file.h"

namespace firnkv {
namespace {

constexpr std::string_view kBitsHeading = "layer,k_bits,v_bits";
constexpr std::string_view kImportanceHeading = "layer,k_importance,v_importance";
constexpr Precision kRest = Precision::kInt2, kImportantK = Precision::kInt3, kImportantV = Precision::kInt4;

struct Row {
  uint32_t layer = 0;
  double k = 0, v = 0;
};

struct Table {
  bool bits = false;
  std::vector<Row> rows;  // By layer.
};

// Cells without the blanks around them.
std::vector<std::string> CellsOf(std::string_view line) {
  std::vector<std::string> cells(1);
  for (char c : line) {
    if (c == ',') {
      cells.emplace_back();
    } else if (c != ' ' && c != '\t' && c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

bool ParseCell(const std::string& cell, double* out) {
  auto [stop, error] = std::from_chars(cell.data(), cell.data() + cell.size(), *out);
  return error == std::errc() && stop == cell.data() + cell.size() && std::isfinite(*out);
}

absl::StatusOr<Row> ParseRow(const std::vector<std::string>& cells, bool bits, const std::string& where) {
  Row row;
  const char* what = bits ? "allowed: 8, 4, 3, 2" : "allowed: a number, 0 or above";
  if (cells.size() != 3) return firn::InvalidArgument("{} has {} cells; allowed: 3", where, cells.size());
  auto [stop, error] = std::from_chars(cells[0].data(), cells[0].data() + cells[0].size(), row.layer);
  if (error != std::errc() || stop != cells[0].data() + cells[0].size() || row.layer >= kLayersMax) {
    return firn::InvalidArgument("{}: layer '{}'; allowed: 0 to {}", where, cells[0], kLayersMax - 1);
  }
  for (auto [cell, out] : {std::pair(&cells[1], &row.k), std::pair(&cells[2], &row.v)}) {
    bool right = ParseCell(*cell, out) && *out >= 0;
    if (right && bits) right = *out == 8 || *out == 4 || *out == 3 || *out == 2;
    if (!right) return firn::InvalidArgument("{}: '{}'; {}", where, *cell, what);
  }
  return row;
}

absl::StatusOr<Table> ParseTable(std::string_view csv, const std::string& source) {
  Table table;
  bool headed = false;
  for (uint32_t number = 1; !csv.empty(); ++number) {
    size_t end = csv.find('\n');
    std::vector<std::string> cells = CellsOf(csv.substr(0, end));
    csv.remove_prefix(end == std::string_view::npos ? csv.size() : end + 1);
    if ((cells.size() == 1 && cells[0].empty()) || cells[0].starts_with('#')) continue;
    const std::string where = fmt::format("{}: line {}", source, number);
    if (!headed) {
      std::string heading = fmt::format("{}", fmt::join(cells, ","));
      table.bits = heading == kBitsHeading;
      if (!table.bits && heading != kImportanceHeading) {
        return firn::InvalidArgument("{}: heading '{}'; allowed: '{}', '{}'", where, heading.substr(0, 200),
                                     kBitsHeading, kImportanceHeading);
      }
      headed = true;
      continue;
    }
    FIRN_ASSIGN_OR_RETURN(Row row, ParseRow(cells, table.bits, where));
    table.rows.push_back(row);
  }
  if (table.rows.empty()) return firn::InvalidArgument("{} ranks no layers; allowed: 1 to {}", source, kLayersMax);
  std::sort(table.rows.begin(), table.rows.end(), [](const Row& a, const Row& b) { return a.layer < b.layer; });
  std::vector<NumberRange> missing;
  for (size_t i = 1; i < table.rows.size(); ++i) {
    uint32_t last = table.rows[i - 1].layer, layer = table.rows[i].layer;
    if (layer == last) return firn::InvalidArgument("{}: layer {} is there twice; allowed: once", source, layer);
    if (layer > last + 1) missing.push_back({last + 1, layer - 1});
  }
  if (missing.empty()) return table;
  return firn::InvalidArgument("{}: layers {} are missing; allowed: every layer from the first, {}, to the last, {}",
                               source, RangesText(missing), table.rows.front().layer, table.rows.back().layer);
}

// Which rows are among the greatest of a column.
std::vector<bool> Greatest(const std::vector<Row>& rows, double Row::*column, double share) {
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rows[a].*column > rows[b].*column; });
  // 0.3 * 10 is a little less than 3.
  auto count = static_cast<size_t>(std::floor(share * static_cast<double>(rows.size()) + 1e-9));
  order.resize(std::max<size_t>(count, 1));
  std::vector<bool> greatest(rows.size());
  for (size_t row : order) greatest[row] = true;
  return greatest;
}

}  // namespace

absl::StatusOr<std::vector<LayerClasses>> ParseRanking(std::string_view csv, const RankingOptions& options) {
  if (!(options.share > 0 && options.share <= 1)) {
    return firn::InvalidArgument("{}: a share of {}; allowed: above 0, at most 1", options.source, options.share);
  }
  FIRN_ASSIGN_OR_RETURN(Table table, ParseTable(csv, options.source));
  std::vector<bool> k_great, v_great;
  if (!table.bits) {
    k_great = Greatest(table.rows, &Row::k, options.share);
    v_great = Greatest(table.rows, &Row::v, options.share);
  }
  std::map<std::pair<Precision, Precision>, std::vector<NumberRange>> by_class;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const Row& row = table.rows[i];
    std::pair<Precision, Precision> classes;
    if (table.bits) {
      classes = {static_cast<Precision>(static_cast<int>(row.k)), static_cast<Precision>(static_cast<int>(row.v))};
    } else {
      classes = {k_great[i] ? kImportantK : kRest, v_great[i] ? kImportantV : kRest};
    }
    AddNumber(&by_class[classes], row.layer);
  }
  std::vector<LayerClasses> ranking;
  for (auto& [classes, ranges] : by_class) {
    ranking.push_back({.layers = std::move(ranges), .k = classes.first, .v = classes.second});
  }
  return ranking;
}

absl::StatusOr<PlanFile> PresetPlan(std::string_view name, const PresetArtifacts& artifacts,
                                    const std::vector<LayerClasses>& ranking) {
  PlanFile file;
  if (name != "kvmix") {
    if (!ranking.empty()) return firn::InvalidArgument("preset {} has no use for a ranking of layers", name);
    FIRN_ASSIGN_OR_RETURN(file.plan, Preset(name, artifacts));
    return file;
  }
  if (ranking.empty()) return firn::InvalidArgument("preset kvmix needs a ranking of layers");
  // Its quantizer is KIVI's; how many bits a layer has is what it adds.
  FIRN_ASSIGN_OR_RETURN(file.plan, Preset("kivi-2", artifacts));
  file.layers = ranking;
  for (const LayerClasses& entry : ranking) {
    if (entry.layers.empty()) return file;  // All are ranked.
  }
  for (const LayerClasses& entry : ranking) {
    file.ranked.insert(file.ranked.end(), entry.layers.begin(), entry.layers.end());
  }
  std::sort(file.ranked.begin(), file.ranked.end(),
            [](const NumberRange& a, const NumberRange& b) { return a.first < b.first; });
  return file;
}

}  // namespace firnkv
