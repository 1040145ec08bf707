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

// Bytes of the UTF-8 sequence that starts `text`, 0 if it is none (Unicode 15, table 3-7).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, beyond U+10FFFF.
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F)) return 0;
  if ((lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

// A byte that is no UTF-8 (a path may hold any) becomes U+FFFD, so that the line stays JSON.
void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char c = text.front();
    if (length == 0)
      out += "\\ufffd";
    else if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (length == 1 && c >= 0 && c < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
}

void append_value(std::string& out, const LogField& field) {
  if (const auto* s = std::get_if<std::string>(&field.value)) {
    append_json_string(out, *s);
  } else if (const auto* d = std::get_if<double>(&field.value)) {
    out += std::isfinite(*d) ? fmt::format("{}", *d) : "null";
  } else {
    std::visit(
        [&](const auto& v) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(v)>, std::string>) out += fmt::format("{}", v);
        },
        field.value);
  }
}

}  // namespace

Logger::Logger() = default;

Logger Logger::to_file(std::string_view path, LogLevel level, std::string_view component) {
  spdlog::sink_ptr sink;
  std::string not_opened;
  if (!path.empty()) {
    try {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(std::string(path));
    } catch (const spdlog::spdlog_ex& error) {
      not_opened = error.what();
    }
  }
  if (!sink) sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();

  Logger logger;
  logger.sink_ = std::make_shared<spdlog::logger>("kintsugi", std::move(sink));
  logger.sink_->set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%fZ","pid":%P,"level":"%l",%v})",
                            spdlog::pattern_time_type::utc);
  logger.sink_->set_level(to_spdlog(level));
  logger.sink_->flush_on(spdlog::level::info);
  logger.component_ = component;
  if (!not_opened.empty()) {
    logger.error("cannot open the log file; logging to standard error", {{"path", path}, {"why", not_opened}});
  }
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
