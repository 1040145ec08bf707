// Structured logging: one JSON object a line (time, level, component, message, fields), through spdlog.
// One logger a process, made in main and handed down; no global state of ours.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace spdlog {
class logger;
}

namespace kintsugi {

enum class LogLevel : unsigned char { debug, info, warning, error, off };

// {"step", 7}: any arithmetic type, or anything a std::string is made from.
struct LogField {
  template <class T>
  LogField(std::string_view name, const T& content) : key(name), value(widen(content)) {}

  std::string_view key;
  std::variant<std::int64_t, std::uint64_t, double, bool, std::string> value;

 private:
  template <class T>
  static auto widen(const T& content) {
    if constexpr (std::is_same_v<T, bool>)
      return content;
    else if constexpr (std::is_floating_point_v<T>)
      return static_cast<double>(content);
    else if constexpr (std::is_signed_v<T>)
      return static_cast<std::int64_t>(content);
    else if constexpr (std::is_unsigned_v<T>)
      return static_cast<std::uint64_t>(content);
    else
      return std::string(content);
  }
};

// Thread safe. Copies share the sink.
class Logger {
 public:
  // Writes nothing.
  Logger();
  // `path` empty: standard error. Lines below `level` are dropped. A file that cannot be opened is no reason not to
  // train: the log then goes to standard error, and its first line says why.
  static Logger to_file(std::string_view path, LogLevel level, std::string_view component);
  // The same sink under another component name.
  Logger with_component(std::string_view component) const;

  void log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {}) const;
  void debug(std::string_view m, std::initializer_list<LogField> f = {}) const { log(LogLevel::debug, m, f); }
  void info(std::string_view m, std::initializer_list<LogField> f = {}) const { log(LogLevel::info, m, f); }
  void warning(std::string_view m, std::initializer_list<LogField> f = {}) const { log(LogLevel::warning, m, f); }
  void error(std::string_view m, std::initializer_list<LogField> f = {}) const { log(LogLevel::error, m, f); }

 private:
  std::shared_ptr<spdlog::logger> sink_;
  std::string component_;
};

}  // namespace kintsugi
