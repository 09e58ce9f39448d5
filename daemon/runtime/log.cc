#include "daemon/runtime/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>

namespace firn {
namespace {

std::atomic<bool> g_json{false};

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("firnd", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *logger;
}

spdlog::level::level_enum LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

std::string AsJson(std::string_view message, std::initializer_list<LogField> fields) {
  nlohmann::ordered_json object;
  object["message"] = message;
  for (const LogField& field : fields) object[std::string(field.name)] = field.value;
  // Values may hold bytes of a client's choosing: whatever is not UTF-8 is replaced, and no line can be forged.
  std::string text = object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return text.substr(1, text.size() - 2);
}

std::string AsText(std::string_view message, std::initializer_list<LogField> fields) {
  std::string out(message);
  for (const LogField& field : fields) {
    bool plain = !field.value.empty();
    for (char c : field.value) plain = plain && c > ' ' && c != '"' && c != 0x7f;
    out += ' ';
    out += field.name;
    out += '=';
    if (plain) {
      out += field.value;
    } else {
      out += nlohmann::json(field.value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    }
  }
  return out;
}

}  // namespace

void ConfigureLog(std::string_view level, std::string_view format) {
  Logger().set_level(spdlog::level::from_str(std::string(level)));
  g_json = format == "json";
  Logger().set_pattern(g_json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})"
                              : "%Y-%m-%dT%H:%M:%S.%e%z %l %v");
}

void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  spdlog::level::level_enum at = LevelOf(level);
  if (!Logger().should_log(at)) return;
  Logger().log(at, spdlog::string_view_t(g_json ? AsJson(message, fields) : AsText(message, fields)));
}

}  // namespace firn
