#include "base/log.hpp"

#include <fmt/format.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cmath>

namespace kintsugi {

namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
    case LogLevel::off: return spdlog::level::off;
  }
  return spdlog::level::off;
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_value(std::string& out, const LogField& field) {
  if (const auto* s = std::get_if<std::string>(&field.value)) {
    append_json_string(out, *s);
  } else if (const auto* d = std::get_if<double>(&field.value)) {
    out += std::isfinite(*d) ? fmt::format("{}", *d) : "null";
  } else {
    std::visit([&](const auto& v) {
      if constexpr (!std::is_same_v<std::decay_t<decltype(v)>, std::string>) out += fmt::format("{}", v);
    }, field.value);
  }
}

}  // namespace

Logger::Logger() = default;

Logger Logger::to_file(std::string_view path, LogLevel level, std::string_view component) {
  Logger logger;
  spdlog::sink_ptr sink;
  if (path.empty()) sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  else sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(std::string(path));
  logger.sink_ = std::make_shared<spdlog::logger>("kintsugi", std::move(sink));
  logger.sink_->set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%fZ","pid":%P,"level":"%l",%v})", spdlog::pattern_time_type::utc);
  logger.sink_->set_level(to_spdlog(level));
  logger.sink_->flush_on(spdlog::level::info);
  logger.component_ = component;
  return logger;
}

Logger Logger::with_component(std::string_view component) const {
  Logger copy = *this;
  copy.component_ = component;
  return copy;
}

void Logger::log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) const {
  if (!sink_ || !sink_->should_log(to_spdlog(level))) return;
  std::string line = R"("component":)";
  append_json_string(line, component_);
  line += R"(,"message":)";
  append_json_string(line, message);
  for (const LogField& field : fields) {
    line += ',';
    append_json_string(line, field.key);
    line += ':';
    append_value(line, field);
  }
  sink_->log(to_spdlog(level), line);
}

}  // namespace kintsugi
