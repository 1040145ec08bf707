// What subcommands share: how they declare themselves, how they fail, where a cluster is found.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"

namespace kintsugi::cli {

// Exit codes of CLI.md.
constexpr int kDone = 0, kFailed = 1, kUsage = 2, kRefused = 3, kInterrupted = 130;

// Set by the subcommand that was chosen; main runs it after parsing, outside CLI11.
using Action = std::function<int()>;

// Each adds its subcommand.
void add_run(CLI::App& app, Action& action);
void add_supervise(CLI::App& app, Action& action);
void add_join(CLI::App& app, Action& action);
void add_submit(CLI::App& app, Action& action);
void add_cancel(CLI::App& app, Action& action);
void add_pause(CLI::App& app, Action& action);
void add_resume(CLI::App& app, Action& action);
void add_status(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_drain(CLI::App& app, Action& action);
void add_evict(CLI::App& app, Action& action);
void add_inject(CLI::App& app, Action& action);
void add_chaos(CLI::App& app, Action& action);
void add_sim(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_data(CLI::App& app, Action& action);
void add_data_audit(CLI::App& data, Action& action);  // part of add_data
void add_version(CLI::App& app, Action& action);
void add_rank(CLI::App& app, Action& action);  // hidden: started by nodes only

// Prints "kintsugi: MESSAGE" to standard error and returns the exit code that the action asks for.
int fail(const Error& error);

// --log FILE and --verbose. Without them the processes of a cluster log warnings, and the commands of a person, who
// reads messages instead, only errors.
struct LogOptions {
  std::string file;  // empty: standard error
  bool verbose = false;
  void add_to(CLI::App& command);
  Logger make(const char* component, LogLevel least = LogLevel::error) const;
  // As arguments for a child process.
  std::vector<std::string> arguments() const;
};

// $KINTSUGI_STATE, else $XDG_STATE_HOME/kintsugi, else ~/.local/state/kintsugi.
std::string default_state_directory();
void add_state_option(CLI::App& command, std::string& directory);

std::string kintsugi_version();

// For --seed and the like: digits only, and within 64 bits.
CLI::Validator whole_number();

// As main got them, for a process that starts again.
char* const* own_arguments();
void keep_own_arguments(char** arguments);

// Cores that this process may use.
unsigned usable_cores();

// Absolute and without a trailing slash; empty stays empty.
std::string absolute_path(const std::string& path);

}  // namespace kintsugi::cli
