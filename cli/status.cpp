#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "cli/client.hpp"
#include "cli/command.hpp"

namespace kintsugi::cli {

namespace {

struct StatusOptions {
  std::string state;
  bool json = false;
  LogOptions log;
};

// Whose child each actor is; a process at its root.
void print_actors(const nlohmann::json& actors, std::size_t depth) {
  for (const auto& a : actors) {
    const std::string name = std::string(2 * depth, ' ') + a["actor"].get<std::string>();
    const std::string process = a.contains("pid") ? "process " + a["pid"].dump() : "";
    std::string restarts;
    if (!a["last_crash"].is_null())
      restarts = fmt::format("restarted {} times: {}", a["restarts"].dump(), a["last_crash"].get<std::string>());
    const std::string line = fmt::format("{:<34} {:>11}  {:<15} {}", name, a["incarnation"].dump(), process, restarts);
    fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
    print_actors(a["children"], depth + 1);
  }
}

void print(const nlohmann::json& s) {
  fmt::print("{:<5} {:<20} {:>5} {:>6} {:>10}  {}\n", "node", "host", "slots", "cores", "memory", "job");
  for (const auto& n : s["nodes"]) {
    fmt::print("{:<5} {:<20} {:>5} {:>6} {:>10}  {}\n", n["node"].get<std::uint32_t>(), n["host"].get<std::string>(),
               n["slots"].get<std::uint32_t>(), n["cores"].get<std::uint32_t>(),
               format_bytes(n["memory_bytes"].get<std::uint64_t>()), n["job"].is_null() ? "-" : n["job"].dump());
  }
  if (s["nodes"].empty()) fmt::print("(none: machines join by the command that `kintsugi supervise` printed)\n");
  for (const auto& j : s["jobs"]) {
    fmt::print("\njob {} '{}': {}, step {} of {}, loss {}, {:.0f} tokens/s, {} ranks\n", j["job"].dump(),
               j["name"].get<std::string>(), j["phase"].get<std::string>(), j["step"].dump(), j["steps"].dump(),
               j["loss"].dump(), j["tokens_per_second"].get<double>(), j["ranks"].size());
    if (!j["plan"].get<std::string>().empty()) fmt::print("plan: {}\n", j["plan"].get<std::string>());
  }
  if (s["jobs"].empty()) fmt::print("\nno job\n");
  fmt::print("\n{:<34} {:>11}\n", "actor", "incarnation");
  print_actors(s["actors"], 0);
}

int status(const StatusOptions& o) {
  const auto answer =
      ask(o.state, actors::make_frame([](schemas::Message::Builder m) { m.setStatus(); }), o.log.make("status"));
  if (!answer) return fail(answer.error());
  int code = kDone;
  const Result<void> read = actors::guarded([&] {
    if (!answer->get().isStatusReply()) {
      code = fail({ErrorAction::refuse, "the supervisor gave another answer than a status; is it of another version?"});
      return;
    }
    const std::string text = answer->get().getStatusReply().cStr();
    if (o.json)
      std::fputs(text.c_str(), stdout);
    else
      print(nlohmann::json::parse(text));
  });
  return read ? code : fail(read.error());
}

}  // namespace

void add_status(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("status", "Nodes, ranks, the plan, step, loss, throughput and the tree of actors");
  auto o = std::make_shared<StatusOptions>();
  add_state_option(*command, o->state);
  command->add_flag("--json", o->json, "print JSON");
  o->log.add_to(*command);
  command->footer("Example:\n  kintsugi status --json");
  command->callback([&action, o] { action = [o] { return status(*o); }; });
}

}  // namespace kintsugi::cli
