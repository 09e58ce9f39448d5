#include "base/toml/toml_section.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <sstream>

#include "base/status.h"
#include "base/units.h"

namespace firn {
namespace {

std::string Shown(const toml::node& node) {
  std::ostringstream out;
  if (const auto* text = node.as_string()) {
    out << '"' << text->get() << '"';
  } else if (const auto* table = node.as_table()) {
    out << toml::toml_formatter(*table);
  } else if (const auto* number = node.as_floating_point()) {
    out << fmt::format("{}", number->get());
  } else {
    node.visit([&out](const auto& value) { out << value; });
  }
  return std::move(out).str();
}

std::string DurationText(int64_t ms) {
  return ms % 1000 == 0 ? fmt::format("{} s", ms / 1000) : fmt::format("{} ms", ms);
}

}  // namespace

TomlSection::TomlSection(const toml::table& table, std::string prefix, Report* report)
    : table_(table), prefix_(std::move(prefix)), report_(report) {}

bool TomlSection::Has(std::string_view key) { return Find(key) != nullptr; }

const toml::node* TomlSection::Find(std::string_view key) {
  const toml::node* node = table_.get(key);
  bool first = known_.emplace(key).second;
  if (first && node != nullptr) {
    // Tables and lists of them are shown by their keys.
    bool is_value = !node->is_table() && !node->is_array_of_tables();
    report_->origins[prefix_ + std::string(key)] = {is_value ? Shown(*node) : "", node->source().begin.line};
  }
  return node;
}

uint32_t TomlSection::line() const { return table_.source().begin.line; }

void TomlSection::Error(std::string_view key, const std::string& what) {
  if (!told_.emplace(key).second) return;  // What follows from a value that is wrong already helps nobody.
  const toml::node* node = table_.get(key);
  // What is missing is missing in the table.
  uint32_t line = (node != nullptr ? node->source() : table_.source()).begin.line;
  report_->errors.push_back({prefix_ + std::string(key), node != nullptr ? Shown(*node) : "", what, line});
}

void TomlSection::Bytes(std::string_view key, uint64_t* out, uint64_t least, uint64_t most) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  std::string range = fmt::format("allowed: {} to {}", FormatBytes(least), FormatBytes(most));
  const auto* text = node->as_string();
  if (text == nullptr) return Error(key, "a size is a string with a unit, such as \"64GiB\"; " + range);
  auto bytes = ParseBytes(text->get());
  if (!bytes.ok()) return Error(key, Message(bytes.status()) + "; " + range);
  if (*bytes < least || *bytes > most) return Error(key, "out of range; " + range);
  *out = *bytes;
}

void TomlSection::Bytes(std::string_view key, uint32_t* out, uint32_t least, uint32_t most) {
  uint64_t wide = *out;
  Bytes(key, &wide, uint64_t{least}, uint64_t{most});
  *out = static_cast<uint32_t>(wide);
}

void TomlSection::Duration(std::string_view key, int64_t* out_ms, int64_t least_ms, int64_t most_ms) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  std::string range = fmt::format("allowed: {} to {}", DurationText(least_ms), DurationText(most_ms));
  const auto* text = node->as_string();
  if (text == nullptr) return Error(key, "a duration is a string with a unit, such as \"30s\"; " + range);
  auto ms = ParseDurationMs(text->get());
  if (!ms.ok()) return Error(key, Message(ms.status()) + "; " + range);
  if (*ms < least_ms || *ms > most_ms) return Error(key, "out of range; " + range);
  *out_ms = *ms;
}

void TomlSection::Int(std::string_view key, int64_t* out, int64_t least, int64_t most) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  std::string range = fmt::format("allowed: {} to {}", least, most);
  const auto* number = node->as_integer();
  if (number == nullptr) return Error(key, "not a whole number; " + range);
  if (number->get() < least || number->get() > most) return Error(key, "out of range; " + range);
  *out = number->get();
}

void TomlSection::Count(std::string_view key, uint32_t* out, uint32_t least, uint32_t most) {
  int64_t wide = *out;
  Int(key, &wide, least, most);
  *out = static_cast<uint32_t>(wide);
}

void TomlSection::Share(std::string_view key, double* out) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  auto number = node->value<double>();
  if (!node->is_number() || !number.has_value() || !(*number > 0) || *number > 1) {
    return Error(key, "allowed: a share of the capacity, above 0 and at most 1");
  }
  *out = *number;
}

void TomlSection::Bool(std::string_view key, bool* out) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  const auto* value = node->as_boolean();
  if (value == nullptr) return Error(key, "allowed: true, false");
  *out = value->get();
}

void TomlSection::String(std::string_view key, std::string* out, size_t bytes_max) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  const auto* text = node->as_string();
  const std::string allowed = fmt::format("allowed: a string of 1 to {} bytes, none of them NUL", bytes_max);
  if (text == nullptr) return Error(key, "not a string; " + allowed);
  if (text->get().empty()) return Error(key, "empty; leave the key out to get the default; " + allowed);
  if (text->get().size() > bytes_max) return Error(key, fmt::format("has {} bytes; {}", text->get().size(), allowed));
  if (text->get().find('\0') != std::string::npos) return Error(key, "holds a NUL byte; " + allowed);
  *out = text->get();
}

void TomlSection::Choice(std::string_view key, std::string* out, const std::vector<std::string>& allowed) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  const auto* text = node->as_string();
  if (text != nullptr) {
    for (const std::string& choice : allowed) {
      if (text->get() == choice) {
        *out = choice;
        return;
      }
    }
  }
  Error(key, fmt::format("allowed: \"{}\"", fmt::join(allowed, "\", \"")));
}

void TomlSection::Number(std::string_view key, float* out, double least, double most) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  std::string range = fmt::format("allowed: {} to {}", least, most);
  auto number = node->value<double>();
  if (!node->is_number() || !number.has_value()) return Error(key, "not a number; " + range);
  if (!(*number >= least && *number <= most)) return Error(key, "out of range; " + range);
  *out = static_cast<float>(*number);
}

void TomlSection::Strings(std::string_view key, std::vector<std::string>* out, size_t items_max) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  const std::string allowed = fmt::format("allowed: a list of 1 to {} strings", items_max);
  const auto* array = node->as_array();
  if (array == nullptr || array->empty()) return Error(key, allowed);
  if (array->size() > items_max) return Error(key, fmt::format("has {} items; {}", array->size(), allowed));
  std::vector<std::string> items;
  for (const toml::node& item : *array) {
    const auto* text = item.as_string();
    if (text == nullptr) return Error(key, allowed);
    items.push_back(text->get());
  }
  *out = std::move(items);
}

bool TomlSection::Pair(std::string_view key, std::string* k, std::string* v, const std::string& allowed) {
  const toml::node* node = Find(key);
  if (node == nullptr) return false;
  if (const auto* text = node->as_string()) {
    *k = *v = text->get();
    return true;
  }
  const auto* table = node->as_table();
  const auto* of_k = table == nullptr ? nullptr : table->get_as<std::string>("k");
  const auto* of_v = table == nullptr ? nullptr : table->get_as<std::string>("v");
  if (of_k == nullptr || of_v == nullptr || table->size() != 2) {
    Error(key, allowed);
    return false;
  }
  *k = of_k->get();
  *v = of_v->get();
  return true;
}

bool TomlSection::IsTable(std::string_view key) {
  const toml::node* node = Find(key);
  return node != nullptr && node->is_table();
}

std::vector<std::string> TomlSection::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, node] : table_) keys.emplace_back(key.str());
  return keys;
}

void TomlSection::Sections(std::string_view key, const std::function<void(TomlSection&)>& each) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  const auto* array = node->as_array();
  if (array == nullptr) return Error(key, fmt::format("allowed: a list of tables, written [[{}]]", key));
  size_t index = 0;
  for (const toml::node& element : *array) {
    std::string name = fmt::format("{}{}[{}]", prefix_, key, index++);
    const auto* table = element.as_table();
    if (table == nullptr) {
      report_->errors.push_back(
          {name, Shown(element), fmt::format("allowed: a table, written [[{}]]", key), element.source().begin.line});
      continue;
    }
    report_->origins[name] = {"", table->source().begin.line};
    TomlSection section(*table, name + ".", report_);
    each(section);
    section.Finish();
  }
}

void TomlSection::Section(std::string_view key, const std::function<void(TomlSection&)>& read) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  const auto* table = node->as_table();
  if (table == nullptr) return Error(key, fmt::format("allowed: a table, written [{}]", key));
  TomlSection section(*table, fmt::format("{}{}.", prefix_, key), report_);
  read(section);
  section.Finish();
}

void TomlSection::Finish() {
  for (const auto& [key, node] : table_) {
    if (known_.find(key.str()) != known_.end()) continue;
    Error(key.str(), fmt::format("unknown key; known here: {}", fmt::join(known_, ", ")));
  }
}

absl::Status ReadToml(std::string_view text, std::string_view source, size_t bytes_max, TomlSection::Report* report,
                      absl::FunctionRef<void(TomlSection&)> read) {
  if (text.size() > bytes_max) {
    return InvalidArgument("{}: has {} bytes; such a file has at most {}", source, text.size(), bytes_max);
  }
  toml::table table;
  try {
    table = toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    return InvalidArgument("{}: line {}: {}", source, error.source().begin.line, Printable(error.description()));
  }
  TomlSection root(table, "", report);
  read(root);
  return absl::OkStatus();
}

std::string TomlQuoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace firn
