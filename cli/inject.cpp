#include <charconv>
#include <optional>

#include "cli/client.hpp"
#include "cli/command.hpp"

namespace kintsugi::cli {

namespace {

struct InjectOptions {
  std::string fault;
  std::string target;
  std::string state;
  LogOptions log;
};

using Fault = schemas::Inject::Fault;
constexpr std::pair<const char*, Fault> kFaults[] = {
    {"kill", Fault::KILL}, {"stop", Fault::STOP}, {"continue", Fault::CONTINUE}, {"corrupt", Fault::CORRUPT}};

struct Target {
  std::optional<std::uint32_t> node, rank, shard;  // none: the supervisor
};

// The number after `prefix`; empty if `text` is anything else.
std::optional<std::uint32_t> number_after(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  std::uint32_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<Target> parse_target(const std::string& text) {
  Target target;
  if (text == "supervisor") return target;
  if ((target.node = number_after(text, "node:"))) return target;
  const std::size_t at = text.find('@');
  if (at != std::string::npos) {
    target.shard = number_after(text.substr(0, at), "shard:");
    if (!target.shard) return std::nullopt;
  }
  target.rank = number_after(at == std::string::npos ? text : text.substr(at + 1), "rank:");
  return target.rank ? std::optional(target) : std::nullopt;
}

int inject(const InjectOptions& o) {
  const auto* fault =
      std::find_if(std::begin(kFaults), std::end(kFaults), [&](const auto& f) { return f.first == o.fault; });
  if (fault == std::end(kFaults)) {
    return fail({ErrorAction::tell_user, "'" + o.fault + "' is no fault; there are kill, stop, continue and corrupt"});
  }
  const std::optional<Target> target = parse_target(o.target);
  const bool corrupts = fault->second == Fault::CORRUPT;
  if (!target || corrupts != target->shard.has_value()) {
    return fail({ErrorAction::tell_user, "--on: '" + o.target + "' is no target of " + o.fault + "; write " +
                                             (corrupts ? "shard:S@rank:R" : "rank:N, node:N or supervisor")});
  }
  const auto answer = ask(o.state, actors::make_frame([&](schemas::Message::Builder m) {
                            auto out = m.initInject();
                            out.setFault(fault->second);
                            if (target->node)
                              out.getTarget().setNode(*target->node);
                            else if (target->rank)
                              out.getTarget().setRank(*target->rank);
                            else
                              out.getTarget().setSupervisor();
                            out.setShard(target->shard.value_or(0));
                          }),
                          o.log.make("inject"));
  const bool to_supervisor = !target->node && !target->rank;
  if (!answer) return to_supervisor && answer.error().action != ErrorAction::cancelled ? kDone : fail(answer.error());
  int code = kDone;
  const Result<void> read = actors::guarded([&] {
    if (answer->get().isRefused()) code = fail({ErrorAction::refuse, answer->get().getRefused().getMessage().cStr()});
  });
  if (!read) return fail(read.error());
  if (code == kDone) std::printf("%s: sent to %s\n", o.fault.c_str(), o.target.c_str());
  return code;
}

}  // namespace

void add_inject(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("inject", "Strike a live cluster with a real fault");
  auto o = std::make_shared<InjectOptions>();
  command->add_option("FAULT", o->fault, "kill, stop, continue: a process; corrupt: a bit of a copy of a shard")
      ->required();
  command->add_option("--on", o->target, "rank:N, node:N, supervisor; for corrupt shard:S@rank:R")->required();
  add_state_option(*command, o->state);
  o->log.add_to(*command);
  command->footer("Example:\n  kintsugi inject kill --on rank:2\n  kintsugi inject corrupt --on shard:0@rank:1");
  command->callback([&action, o] { action = [o] { return inject(*o); }; });
}

}  // namespace kintsugi::cli
