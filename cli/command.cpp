#include "cli/command.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

namespace kintsugi::cli {

namespace {
std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}
}  // namespace

int fail(const Error& error) {
  std::fprintf(stderr, "kintsugi: %s\n", error.message.c_str());
  switch (error.action) {
    case ErrorAction::tell_user: return kUsage;
    case ErrorAction::refuse: return kRefused;
    case ErrorAction::fail_link: return kRefused;
    case ErrorAction::cancelled: return kInterrupted;
    case ErrorAction::retry:
    case ErrorAction::end_generation:
    case ErrorAction::restart_process: return kFailed;
  }
  KINTSUGI_UNREACHABLE();
}

void LogOptions::add_to(CLI::App& command) {
  command.add_option("--log", file, "write the log (JSON lines) here instead of standard error")->type_name("FILE");
  command.add_flag("--verbose", verbose, "log every decision, not only warnings");
}

Logger LogOptions::make(const char* component, LogLevel least) const {
  if (!file.empty()) least = LogLevel::warning;
  return Logger::to_file(file, verbose ? LogLevel::info : least, component);
}

std::vector<std::string> LogOptions::arguments() const {
  std::vector<std::string> out;
  if (!file.empty()) out.insert(out.end(), {"--log", absolute_path(file)});
  if (verbose) out.emplace_back("--verbose");
  return out;
}

std::string default_state_directory() {
  if (const std::string own = environment("KINTSUGI_STATE"); !own.empty()) return own;
  if (const std::string xdg = environment("XDG_STATE_HOME"); !xdg.empty()) return xdg + "/kintsugi";
  const std::string home = environment("HOME");
  return (home.empty() ? "/var/tmp" : home + "/.local/state") + "/kintsugi";
}

void add_state_option(CLI::App& command, std::string& directory) {
  directory = default_state_directory();
  command.add_option("--state", directory, "the supervisor's state directory")->type_name("DIR")->capture_default_str();
}

namespace {
char** kept_arguments = nullptr;
}
void keep_own_arguments(char** arguments) {
  kept_arguments = arguments;
}
char* const* own_arguments() {
  return kept_arguments;
}

CLI::Validator whole_number() {
  return {[](const std::string& text) -> std::string {
            std::uint64_t value = 0;
            const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool whole = failed == std::errc() && end == text.data() + text.size();
            return whole ? "" : "'" + text + "' is no whole number from 0 to 2^64 - 1";
          },
          "NUMBER"};
}

unsigned usable_cores() {
  return std::max(1U, std::thread::hardware_concurrency());
}

std::string absolute_path(const std::string& path) {
  if (path.empty()) return path;
  std::filesystem::path out = std::filesystem::absolute(path).lexically_normal();
  if (!out.has_filename() && out.has_relative_path()) out = out.parent_path();
  return out.string();
}

}  // namespace kintsugi::cli
