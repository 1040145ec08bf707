// The scenario file of `kintsugi sim`, against a live cluster: the same draws from the seed strike real processes.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/command.hpp"
#include "cli/strike.hpp"
#include "sim/fleet/timeline.hpp"

namespace kintsugi::cli {

namespace {

struct ChaosOptions {
  std::string scenario, state;
  std::optional<std::uint64_t> seed;
  bool json = false;
  LogOptions log;
};

// How often the job's step is asked for.
constexpr Duration kLook = milliseconds(200);
constexpr std::uint64_t kTargetStream = 2000;

Result<nlohmann::json> status_of(const std::string& state, const Logger& logger) {
  KINTSUGI_TRY_ASSIGN(const auto answer,
                      ask(state, actors::make_frame([](schemas::Message::Builder m) { m.setStatus(); }), logger));
  nlohmann::json status;
  KINTSUGI_TRY(actors::guarded([&] {
    if (answer.get().isStatusReply()) status = nlohmann::json::parse(answer.get().getStatusReply().cStr());
  }));
  if (!status.is_object())
    return Error{ErrorAction::refuse, "the supervisor gave no status; is it of another version?"};
  return status;
}

bool can_strike(sim::FaultClass kind) {
  using sim::FaultClass;
  switch (kind) {
    case FaultClass::process:
    case FaultClass::device:
    case FaultClass::node:
    case FaultClass::rack:
    case FaultClass::network_switch:
    case FaultClass::supervisor:
    case FaultClass::maintenance: return true;
    case FaultClass::network:
    case FaultClass::corruption:
    case FaultClass::straggler: return false;
  }
  KINTSUGI_UNREACHABLE();
}

class Chaos {
 public:
  Chaos(const ChaosOptions& options, const sim::Scenario& scenario)
      : options_(options),
        scenario_(scenario),
        logger_(options.log.make("chaos")),
        seed_(options.seed.value_or(scenario.seed)),
        timeline_(sim::draw_timeline(scenario, seed_)),
        draws_(seed_, kTargetStream) {}

  // Everything that a live cluster cannot be made to suffer is refused before anything is struck.
  Result<void> prepare() {
    for (const sim::FaultSource& f : scenario_.faults) {
      if (f.during_recovery > 0) {
        return refuse(f.cause, "during_recovery is for `kintsugi sim`: write at, at_step, every or count");
      }
      if (!can_strike(f.kind))
        return refuse(f.cause, fmt::format("class {} cannot be struck on a live cluster", to_string(f.kind)));
    }
    for (const sim::TraceEvent& e : scenario_.trace) {
      if (!can_strike(e.kind))
        return refuse("trace", fmt::format("class {} cannot be struck on a live cluster", to_string(e.kind)));
    }
    KINTSUGI_TRY_ASSIGN(const nlohmann::json status, status_of(options_.state, logger_));
    for (const auto& node : status["nodes"]) nodes_.push_back(node["node"].get<std::uint32_t>());
    if (nodes_.size() < scenario_.cluster.provisioned()) {
      return Error{
          ErrorAction::tell_user,
          fmt::format("{}: cluster: {} nodes and spares, but {} nodes have joined; join more, or write what is there",
                      options_.scenario, scenario_.cluster.provisioned(), nodes_.size())};
    }
    if (status["jobs"].empty()) return Error{ErrorAction::refuse, "no job runs on the cluster: submit one first"};
    for (const sim::Fault& fault : timeline_.faults) due_.emplace(fault.at, fault);
    for (std::uint32_t i = 0; i < scenario_.faults.size(); ++i) {
      if (scenario_.faults[i].at_step) at_step_.emplace(*scenario_.faults[i].at_step, i);
    }
    return {};
  }

  // Until the scenario's time is over, all is struck, or no job is left.
  Result<void> run() {
    const SteadyClock clock;
    const Instant began = clock.now();
    while (!due_.empty() || !at_step_.empty()) {
      const double now = (clock.now() - began).seconds();
      if (now >= scenario_.duration) break;
      while (!due_.empty() && due_.begin()->first <= now) {
        const Deed deed = due_.extract(due_.begin()).mapped();
        KINTSUGI_TRY(carry_out(deed, now));
      }
      KINTSUGI_TRY(look(now));
      if (over_) break;
      KINTSUGI_TRY(pause(clock.now() + kLook));
    }
    return {};
  }

  // Whatever the scenario has stopped goes on, however it ended.
  void wake_all() {
    for (const auto& [at, deed] : due_) {
      if (!deed.wakes.empty()) static_cast<void>(report(deed.fault, at, "continue", deed.wakes).ok());
    }
    due_.clear();
  }

  nlohmann::ordered_json told() const {
    return {{"scenario", scenario_.name}, {"seed", seed_}, {"struck", struck_}, {"faults", told_}};
  }

 private:
  struct Deed {
    Deed(const sim::Fault& f) : fault(f) {}  // NOLINT(google-explicit-constructor)
    Deed(const sim::Fault& f, std::string target) : fault(f), wakes(std::move(target)) {}
    sim::Fault fault;
    std::string wakes;  // whom to continue; empty: to strike
  };

  Error refuse(const std::string& cause, const std::string& why) const {
    return {ErrorAction::tell_user, fmt::format("{}: faults: {}: {}", options_.scenario, cause, why)};
  }

  Result<void> pause(Instant until) {
    Inbox inbox;
    while (const std::optional<InboxItem> item = inbox.next(until)) {
      if (std::holds_alternative<Interrupted>(*item)) return Error{ErrorAction::cancelled, "interrupted"};
    }
    return {};
  }

  // A supervisor that is away says nothing; the scenario goes on.
  Result<void> look(double now) {
    const Result<nlohmann::json> status = status_of(options_.state, logger_);
    if (!status && status.error().action == ErrorAction::cancelled) return status.error();
    if (!status) return {};
    over_ = (*status)["jobs"].empty();
    const std::uint64_t step = over_ ? 0 : (*status)["jobs"][0]["step"].get<std::uint64_t>();
    while (!over_ && !at_step_.empty() && at_step_.begin()->first <= step) {
      const std::uint32_t source = at_step_.extract(at_step_.begin()).mapped();
      KINTSUGI_TRY(carry_out(sim::draw_fault(scenario_, source, now, draws_), now));
    }
    return {};
  }

  Result<void> carry_out(const Deed& deed, double now) {
    if (!deed.wakes.empty()) return report(deed.fault, now, "continue", deed.wakes);
    const sim::Fault& fault = deed.fault;
    using sim::FaultClass;
    if (fault.kind == FaultClass::supervisor) return report(fault, now, "kill", "supervisor");
    for (const std::uint32_t n : sim::nodes_struck(scenario_.cluster, fault)) {
      const std::string node = fmt::format("node:{}", nodes_[n]);
      if (fault.kind == FaultClass::maintenance) {
        KINTSUGI_TRY(report(fault, now, "drain", node));
        continue;
      }
      const char* what = fault.hang ? "stop" : "kill";
      const Result<std::string> target = fault.kind == FaultClass::process ? rank_on(nodes_[n]) : Result(node);
      if (!target && target.error().action == ErrorAction::cancelled) return target.error();
      if (!target) {
        tell_of(fault, now, what, "", target.error());
        continue;
      }
      KINTSUGI_TRY(report(fault, now, what, *target));
      if (fault.hang) due_.emplace(now + fault.out, Deed(fault, *target));
    }
    return {};
  }

  // One of the ranks there, drawn.
  Result<std::string> rank_on(std::uint32_t node) {
    KINTSUGI_TRY_ASSIGN(const nlohmann::json status, status_of(options_.state, logger_));
    const Error nobody{ErrorAction::refuse, fmt::format("no rank is on node {}", node)};
    if (status["jobs"].empty()) return nobody;
    std::vector<std::uint32_t> ranks;
    for (const auto& rank : status["jobs"][0]["ranks"]) {
      if (rank["node"] == node) ranks.push_back(rank["rank"].get<std::uint32_t>());
    }
    if (ranks.empty()) return nobody;
    return fmt::format("rank:{}", ranks[draws_.below(ranks.size())]);
  }

  Result<void> report(const sim::Fault& fault, double now, const std::string& what, const std::string& target) {
    const Result<void> struck = what == "drain" ? drain(target) : strike(what, target, options_.state, logger_);
    if (!struck && struck.error().action == ErrorAction::cancelled) return struck;
    tell_of(fault, now, what, target, struck);
    return {};
  }

  void tell_of(const sim::Fault& fault, double now, const std::string& what, const std::string& target,
               const Result<void>& struck) {
    const std::string& cause = timeline_.causes[fault.cause];
    if (struck) ++struck_;
    told_.push_back({{"seconds", now},
                     {"cause", cause},
                     {"class", to_string(fault.kind)},
                     {"fault", what},
                     {"target", target},
                     {"struck", struck.ok()}});
    if (!options_.json) {
      fmt::print("{:8.2f} s  {} ({}): {} {}{}\n", now, cause, to_string(fault.kind), what, target,
                 struck ? "" : ": nothing struck: " + struck.error().message);
      std::fflush(stdout);
    }
  }

  Result<void> drain(const std::string& target) {
    const std::uint32_t node = *parse_target(target)->node;
    return order(options_.state, actors::make_frame([&](schemas::Message::Builder m) { m.setDrain(node); }), logger_);
  }

  const ChaosOptions& options_;
  const sim::Scenario& scenario_;
  const Logger logger_;
  const std::uint64_t seed_;
  const sim::Timeline timeline_;
  DrawStream draws_;
  std::vector<std::uint32_t> nodes_;  // of the cluster, in the order of the scenario's
  std::multimap<double, Deed> due_;   // by seconds
  std::multimap<std::uint64_t, std::uint32_t> at_step_;
  bool over_ = false;
  std::uint64_t struck_ = 0;
  nlohmann::ordered_json told_ = nlohmann::ordered_json::array();
};

int chaos(const ChaosOptions& o) {
  const Result<sim::Scenario> scenario = sim::load_scenario(o.scenario);
  if (!scenario) return fail(scenario.error());
  Chaos chaos(o, *scenario);
  if (const Result<void> ready = chaos.prepare(); !ready) return fail(ready.error());
  const Result<void> done = chaos.run();
  chaos.wake_all();
  if (o.json) fmt::print("{}\n", chaos.told().dump(2));
  return done ? kDone : fail(done.error());
}

}  // namespace

void add_chaos(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("chaos", "Play the faults of a scenario on a live cluster");
  auto o = std::make_shared<ChaosOptions>();
  command->add_option("SCENARIO", o->scenario, "as for `kintsugi sim`")->required()->type_name("SCENARIO.yaml");
  command->add_option("--seed", o->seed, "instead of the scenario's")->check(whole_number());
  command->add_flag("--json", o->json, "print what was struck as JSON, at the end");
  add_state_option(*command, o->state);
  o->log.add_to(*command);
  command->footer(
      "The scenario's nodes are those of the cluster, lowest number first; its racks and switches are runs of them. "
      "What\n"
      "hangs is stopped and goes on after its repair time; what is killed stays dead. Ends with the scenario's "
      "duration,\n"
      "its last fault or the job.\n\n"
      "Example:\n  kintsugi chaos examples/scenarios/live.yaml --state ~/cluster");
  command->callback([&action, o] { action = [o] { return chaos(*o); }; });
}

}  // namespace kintsugi::cli
