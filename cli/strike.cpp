#include "cli/strike.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "cli/command.hpp"

namespace kintsugi::cli {

namespace {

using Fault = schemas::Inject::Fault;
constexpr std::pair<const char*, Fault> kFaults[] = {{"kill", Fault::KILL},
                                                     {"stop", Fault::STOP},
                                                     {"continue", Fault::CONTINUE},
                                                     {"corrupt", Fault::CORRUPT},
                                                     {"crash", Fault::CRASH}};

bool fits(const Target& target, Fault fault) {
  return (fault == Fault::CORRUPT) == target.shard.has_value() && (fault == Fault::CRASH) == !target.actor.empty();
}

const char* targets_of(Fault fault) {
  if (fault == Fault::CORRUPT) return "shard:S@rank:R";
  return fault == Fault::CRASH ? "actor:NAME, as `kintsugi status` names it" : "rank:N, node:N or supervisor";
}

// The number after `prefix`; empty if `text` is anything else.
std::optional<std::uint32_t> number_after(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  std::uint32_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<Target> parse_target(const std::string& text) {
  Target target;
  if (text == "supervisor") return target;
  constexpr std::string_view kActor = "actor:";
  if (text.starts_with(kActor)) {
    target.actor = text.substr(kActor.size());
    return target.actor.empty() ? std::nullopt : std::optional(target);
  }
  if ((target.node = number_after(text, "node:"))) return target;
  const std::size_t at = text.find('@');
  if (at != std::string::npos) {
    target.shard = number_after(text.substr(0, at), "shard:");
    if (!target.shard) return std::nullopt;
  }
  target.rank = number_after(at == std::string::npos ? text : text.substr(at + 1), "rank:");
  return target.rank ? std::optional(target) : std::nullopt;
}

Result<void> strike(const std::string& fault, const std::string& to, const std::string& state_directory,
                    const Logger& logger) {
  const auto* known =
      std::find_if(std::begin(kFaults), std::end(kFaults), [&](const auto& f) { return f.first == fault; });
  if (known == std::end(kFaults)) {
    return Error{ErrorAction::tell_user,
                 "'" + fault + "' is no fault; there are kill, stop, continue, corrupt and crash"};
  }
  const std::optional<Target> target = parse_target(to);
  if (!target || !fits(*target, known->second)) {
    return Error{ErrorAction::tell_user,
                 "--on: '" + to + "' is no target of " + fault + "; write " + targets_of(known->second)};
  }
  const Result<void> struck = order(state_directory, actors::make_frame([&](schemas::Message::Builder m) {
                                      auto out = m.initInject();
                                      out.setFault(known->second);
                                      if (!target->actor.empty())
                                        out.getTarget().setActor(target->actor);
                                      else if (target->node)
                                        out.getTarget().setNode(*target->node);
                                      else if (target->rank)
                                        out.getTarget().setRank(*target->rank);
                                      else
                                        out.getTarget().setSupervisor();
                                      out.setShard(target->shard.value_or(0));
                                    }),
                                    logger);
  const bool is_root =
      target->actor.empty() || target->actor == "cluster_supervisor";  // which may take the process along
  const bool to_supervisor = !target->node && !target->rank && is_root;
  if (!struck && to_supervisor && struck.error().action != ErrorAction::cancelled) return {};
  return struck;
}

}  // namespace kintsugi::cli
