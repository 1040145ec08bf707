#include "sim/policy/policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace kintsugi::sim {

namespace {

bool strikes_job(const Scenario& s, const Fault& f) {
  const std::vector<std::uint32_t> nodes = nodes_struck(s.cluster, f);
  return std::any_of(nodes.begin(), nodes.end(), [&](std::uint32_t n) { return n < s.cluster.nodes; });
}

// Nodes that are away, and until when.
class Repairs {
 public:
  explicit Repairs(const Scenario& s) : s_(s) {}

  // How many seconds from `at` on there are too few nodes.
  double wait(double at) {
    while (!back_.empty() && *back_.begin() <= at) back_.erase(back_.begin());
    if (back_.size() <= s_.cluster.spares) return 0;
    auto enough = back_.begin();
    std::advance(enough, static_cast<std::ptrdiff_t>(back_.size() - s_.cluster.spares - 1));
    return *enough - at;
  }
  void strike(const Fault& f, double at) {
    const bool stays = f.kind == FaultClass::process || f.kind == FaultClass::network ||
                       f.kind == FaultClass::supervisor || f.kind == FaultClass::corruption;
    if (stays) return;
    for (std::size_t n = nodes_struck(s_.cluster, f).size(); n > 0; --n) back_.insert(at + f.out);
  }

 private:
  const Scenario& s_;
  std::multiset<double> back_;
};

Outcome outcome_of(const Scenario& s, const std::string& name, double step_seconds) {
  Outcome out;
  out.policy = name;
  out.wall = s.duration;
  out.step_seconds = step_seconds;
  out.tokens_per_step = static_cast<double>(s.workload.batch.tokens_per_step());
  out.in_job_ranks = s.ranks();
  out.provisioned_ranks = std::uint64_t{s.cluster.provisioned()} * s.cluster.ranks_per_node;
  return out;
}

// Trains and stalls by the wall; faults come by the wall or by what was trained.
class Restarting {
 public:
  Restarting(const Scenario& s, const RestartFigures& f, Outcome& out)
      : f_(f), repairs_(s), out_(out), end_(s.duration) {}

  void strike(const Fault& fault, const std::string& cause) {
    const double wait = fault.at - clock();
    if (wait >= 0) {
      train(wait, cause);
      if (wall_ >= end_) return;
      out_.recovery.push_back(0);
    } else if (!f_.productive_clock) {  // it strikes the wait for the one before
      out_.lost[stalled_for_].seconds -= std::min(wall_, end_) - fault.at;
      wall_ = fault.at;
    }
    ++out_.lost[cause].events;
    repairs_.strike(fault, wall_);
    const double stall = f_.timeout + f_.restart + repairs_.wait(wall_ + f_.timeout);
    out_.lost[cause].seconds += std::min(stall, end_ - wall_);
    stalled_for_ = cause;
    if (!out_.recovery.empty()) out_.recovery.back() += stall;
    wall_ += stall;
  }
  void finish() {
    if (wall_ < end_) train(end_ - wall_, "step in progress at the end");
  }
  bool over() const { return wall_ >= end_; }

 private:
  double clock() const { return f_.productive_clock ? trained_ : wall_; }
  void train(double seconds, const std::string& cause) {
    seconds = std::min(seconds, end_ - wall_);
    const double cycle = f_.interval + f_.write;
    const double cycles = static_cast<double>(static_cast<std::int64_t>(seconds / cycle));
    const double rest = seconds - cycles * cycle;
    out_.steps += cycles * f_.interval / out_.step_seconds;
    out_.lost["checkpoints"].seconds += cycles * f_.write + std::max(0.0, rest - f_.interval);
    out_.lost[cause].seconds += std::min(rest, f_.interval);
    wall_ += seconds;
    trained_ += seconds;
  }

  const RestartFigures& f_;
  Repairs repairs_;
  Outcome& out_;
  const double end_;
  double wall_ = 0, trained_ = 0;
  std::string stalled_for_;
};

}  // namespace

double expected_ettr(double failures_per_second, double restart, double interval, double write) {
  return (1 - failures_per_second * (restart + interval / 2)) / (1 + write / interval);
}

Outcome run_restart(const Scenario& s, const Timeline& timeline, const std::string& name, const RestartFigures& f,
                    double step_seconds) {
  Outcome out = outcome_of(s, name, step_seconds);
  out.assumptions = fmt::format("interval {} s, write {} s, time-out {} s, restart {} s, faults on the {} clock",
                                f.interval, f.write, f.timeout, f.restart, f.productive_clock ? "productive" : "wall");
  Restarting run(s, f, out);
  for (const Fault& fault : timeline.faults) {
    if (run.over()) break;
    ++out.faults;
    if (strikes_job(s, fault))
      run.strike(fault, timeline.causes[fault.cause]);
    else
      ++out.idle_faults;
  }
  run.finish();
  return out;
}

Outcome run_replica_groups(const Scenario& s, const Timeline& timeline, const GroupFigures& f, double step_seconds) {
  Outcome out = outcome_of(s, "replica groups", step_seconds);
  const std::uint32_t group_nodes = std::max(1u, static_cast<std::uint32_t>(s.workload.stages) / s.members_per_node());
  const std::uint32_t groups = std::max(1u, s.cluster.nodes / group_nodes);
  out.assumptions =
      fmt::format("{} groups of {} nodes; stall {} s, rejoin {} s", groups, group_nodes, f.stall, f.rejoin);
  std::multimap<double, std::uint32_t> back;  // when a group rejoins
  std::vector<std::uint32_t> away(groups, 0);
  Repairs repairs(s);
  double at = 0, stalled_until = 0;
  std::string stalled_for;
  const auto advance = [&](double to) {
    while (at < to) {
      const double next = back.empty() ? to : std::min(to, back.begin()->first);
      const double stall = std::clamp(stalled_until - at, 0.0, next - at);
      const auto missing = std::count_if(away.begin(), away.end(), [](std::uint32_t n) { return n > 0; });
      const double share = static_cast<double>(missing) / groups;
      const double trained = next - at - stall;
      if (stall > 0) out.lost[stalled_for].seconds += stall;
      out.lost["short-handed"].seconds += trained * share;
      out.steps += trained * (1 - share) / step_seconds;
      at = next;
      while (!back.empty() && back.begin()->first <= at) {
        --away[back.begin()->second];
        back.erase(back.begin());
      }
    }
  };
  for (const Fault& fault : timeline.faults) {
    ++out.faults;
    if (!strikes_job(s, fault) || fault.kind == FaultClass::supervisor) {
      ++out.idle_faults;
      continue;
    }
    advance(fault.at);
    stalled_for = timeline.causes[fault.cause];
    ++out.lost[stalled_for].events;
    stalled_until = std::max(stalled_until, at + f.stall);
    repairs.strike(fault, at);
    const double rejoin = at + f.rejoin + repairs.wait(at);
    for (const std::uint32_t node : nodes_struck(s.cluster, fault)) {
      const std::uint32_t group = node / group_nodes;
      if (group >= groups) continue;
      ++away[group];
      back.emplace(rejoin, group);
    }
    out.recovery.push_back(f.stall);
  }
  advance(s.duration);
  return out;
}

std::vector<Outcome> run_other_policies(const Scenario& s, const Timeline& timeline, double step_seconds) {
  return {run_restart(s, timeline, "stop and restart", s.policy.restart, step_seconds),
          run_restart(s, timeline, "in-memory snapshots", s.policy.snapshot, step_seconds),
          run_replica_groups(s, timeline, s.policy.groups, step_seconds)};
}

}  // namespace kintsugi::sim
