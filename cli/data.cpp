#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/tell.hpp"
#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "engine/data/inspect.hpp"
#include "engine/data/prepare.hpp"

namespace kintsugi::cli {

namespace {

struct WasInterrupted {};  // unwinds prepare, which removes its temporary file

struct PrepareCommand {
  PrepareOptions options;
  bool json = false;
};

// Text under `paths`, bytes, for the bar; what cannot be read counts nothing.
std::uint64_t bytes_under(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::uint64_t sum = 0;
  std::error_code failed;
  for (const std::string& path : paths) {
    if (fs::is_regular_file(path, failed)) sum += fs::file_size(path, failed);
    if (!fs::is_directory(path, failed)) continue;
    for (fs::recursive_directory_iterator at(path, fs::directory_options::skip_permission_denied, failed), end;
         !failed && at != end && !interrupted(); at.increment(failed)) {
      if (at->is_regular_file(failed)) sum += at->file_size(failed);
    }
  }
  return sum;
}

void draw_bar(std::uint64_t done, std::uint64_t all) {
  constexpr std::size_t kWidth = 40;
  const double part = all == 0 ? 1.0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(all));
  const auto full = static_cast<std::size_t>(part * kWidth);
  tell("\r\x1b[K[{}{}] {:3.0f} %  {}", std::string(full, '#'), std::string(kWidth - full, ' '), part * 100,
       format_bytes(done));
  std::fflush(stderr);
}

int prepare_command(PrepareCommand c) {
  catch_interrupts();
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  const std::uint64_t all = terminal ? std::min(bytes_under(c.options.inputs), c.options.max_bytes) : 0;
  std::uint64_t drawn = 0;
  c.options.progress = [&](const PrepareStatistics& s) {
    if (interrupted()) throw WasInterrupted();
    if (terminal && (s.tokens - drawn) * 200 >= all) {
      drawn = s.tokens;
      draw_bar(s.tokens, all);
    }
  };
  Result<PrepareStatistics> done = Error{};
  try {
    done = prepare(c.options);
  } catch (const WasInterrupted&) {
    done = Error{ErrorAction::cancelled, "interrupted; nothing was written"};
  }
  if (terminal) tell("\r\x1b[K");
  if (!done) return fail(done.error());
  if (c.json) {
    const nlohmann::ordered_json facts = {{"output", c.options.output},
                                          {"documents", done->documents},
                                          {"tokens", done->tokens},
                                          {"skipped_binary", done->skipped_binary},
                                          {"skipped_unreadable", done->skipped_unreadable},
                                          {"skipped_other", done->skipped_other},
                                          {"capped", done->capped},
                                          {"unigram_entropy_nats", done->unigram_entropy_nats}};
    fmt::print("{}\n", facts.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}: {}\n", c.options.output, done->summary());
  }
  return kDone;
}

struct InspectCommand {
  std::string path;
  std::string format;
  std::uint64_t length = 0;
  bool json = false;
};

int inspect_command(const InspectCommand& c) {
  std::optional<TokenFormat> format;
  for (const TokenFormat f : {TokenFormat::uint16, TokenFormat::uint32, TokenFormat::llmc}) {
    if (c.format == to_string(f)) format = f;
  }
  const Result<TokenFacts> facts = inspect_tokens(c.path, format);
  if (!facts) return fail(facts.error());
  if (c.json) {
    nlohmann::ordered_json out = {{"path", c.path},
                                  {"format", to_string(facts->format)},
                                  {"tokens", facts->tokens},
                                  {"smallest", facts->smallest},
                                  {"largest", facts->largest},
                                  {"vocabulary_needed", facts->vocabulary_needed},
                                  {"first_tokens", facts->first_tokens}};
    out["unigram_entropy_nats"] =
        facts->unigram_entropy_nats ? nlohmann::ordered_json(*facts->unigram_entropy_nats) : nullptr;
    if (c.length > 0) out["samples"] = facts->samples(c.length);
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return kDone;
  }
  fmt::print("{}: {} tokens as {}, from {} to {}\n", c.path, facts->tokens, to_string(facts->format), facts->smallest,
             facts->largest);
  if (facts->unigram_entropy_nats)
    fmt::print("unigram entropy: {:.4f} nats\n", *facts->unigram_entropy_nats);
  else
    fmt::print("too many different tokens for a vocabulary: the format is most likely another one (--tokens)\n");
  if (c.length > 0) fmt::print("samples of {}: {}\n", c.length, facts->samples(c.length));
  fmt::print("begins: {}\n", facts->first_tokens);
  return kDone;
}

void add_prepare(CLI::App& data, Action& action) {
  CLI::App* command =
      data.add_subcommand("prepare", "Turn text files and trees into one token file; a token is a byte");
  auto c = std::make_shared<PrepareCommand>();
  command->add_option("PATH", c->options.inputs, "files and directories, in this order")->required();
  command->add_option("-o,--output,--out", c->options.output, "the token file (uint16)")->required()->type_name("FILE");
  command->add_option("--max-bytes", c->options.max_bytes, "stop after so much text")
      ->type_name("N")
      ->check(CLI::Range(std::uint64_t{1}, UINT64_MAX));
  command->add_flag("--json", c->json, "print JSON");
  command->footer("Example:\n  kintsugi data prepare --output train.bin --max-bytes 24000000 /usr/include/c++");
  command->callback([&action, c] { action = [c] { return prepare_command(*c); }; });
}

void add_inspect(CLI::App& data, Action& action) {
  CLI::App* command = data.add_subcommand("inspect", "The facts of a token file");
  auto c = std::make_shared<InspectCommand>();
  command->add_option("FILE", c->path, "the token file")->required();
  command->add_option("--tokens", c->format, "how it is stored; default: llmc if it says so, else uint16")
      ->check(CLI::IsMember({"uint16", "uint32", "llmc"}));
  command->add_option("--length", c->length, "count samples of this many tokens")
      ->type_name("N")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  command->add_flag("--json", c->json, "print JSON");
  command->footer("Example:\n  kintsugi data inspect train.bin --length 256");
  command->callback([&action, c] { action = [c] { return inspect_command(*c); }; });
}

}  // namespace

void add_data(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("data", "Datasets: prepare, inspect, audit");
  command->require_subcommand(1);
  command->footer("Example:\n  kintsugi data prepare --output train.bin ~/texts\n  kintsugi data inspect train.bin");
  add_prepare(*command, action);
  add_inspect(*command, action);
  add_data_audit(*command, action);
}

}  // namespace kintsugi::cli
