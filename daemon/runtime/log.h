// The daemon's log: one line an event, to standard error, as text or as JSON objects.
//
// Threads: any. An event has a message that never varies and fields that do, so that logs can be counted and searched.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace firn {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

struct LogField {
  template <typename T>
  LogField(std::string_view field_name, const T& field_value)
      : name(field_name), value(fmt::format("{}", field_value)) {}
  std::string_view name;
  std::string value;
};

// "debug", "info", "warning", "error"; "text" or "json". Until it is called, text at level info.
void ConfigureLog(std::string_view level, std::string_view format);
void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {});

}  // namespace firn
