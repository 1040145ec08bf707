// Cluster: what is done to it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/protocol/cluster.hpp"

namespace kintsugi::sim::protocol {

std::vector<Rank*> Cluster::living_ranks() {
  std::vector<Rank*> living;
  for (const auto& rank : ranks_) {
    if (processes_.is_alive(rank->pid())) living.push_back(rank.get());
  }
  return living;
}

std::vector<Node*> Cluster::living_nodes() {
  std::vector<Node*> living;
  for (const auto& node : nodes_) {
    if (processes_.is_alive(node->pid())) living.push_back(node.get());
  }
  return living;
}

std::optional<LinkId> Cluster::link_of(const Node& node) const {
  const auto at = link_of_node_.find(node.pid());
  return at == link_of_node_.end() ? std::nullopt : std::optional(at->second);
}

void Cluster::strike(const Fault& fault) {
  bool struck = true;
  switch (fault.kind) {
    case FaultKind::kill_rank:
    case FaultKind::stop_rank:
    case FaultKind::slow_rank:
    case FaultKind::hang_stage: struck = strike_rank(fault); break;
    case FaultKind::kill_node:
    case FaultKind::lose_node:
    case FaultKind::stop_node:
    case FaultKind::cut_to_node:
    case FaultKind::cut_from_node:
    case FaultKind::delay_node: struck = strike_node(fault); break;
    case FaultKind::kill_supervisor:
    case FaultKind::stop_supervisor: struck = strike_supervisor(fault); break;
    case FaultKind::cut_data:
    case FaultKind::break_data:
    case FaultKind::repeat_data: struck = strike_data(fault); break;
    case FaultKind::slow_starts: starts_are_slow_until_ = clock_.now() + fault.span * 3; break;
    case FaultKind::join: add_node(1 + static_cast<std::uint32_t>(fault.target % 3)); break;
    case FaultKind::drain:
    case FaultKind::evict:
    case FaultKind::pause:
      struck = supervisor_ != nullptr && !processes_.is_stopped(supervisor_->pid());
      if (struck) command(fault);
      break;
  }
  if (!struck) return;
  const bool is_command = fault.kind == FaultKind::join || fault.kind == FaultKind::drain ||
                          fault.kind == FaultKind::evict || fault.kind == FaultKind::pause;
  if (!is_command) watch_.fault_struck();
  ++struck_;
  tell("FAULT " + to_string(fault));
}

bool Cluster::strike_rank(const Fault& fault) {
  const std::vector<Rank*> ranks = living_ranks();
  if (ranks.empty()) return false;
  Rank& rank = *ranks[fault.target % ranks.size()];
  const Pid pid = rank.pid();
  if (fault.kind == FaultKind::kill_rank) end_process(pid, "was killed by signal 9 (Killed)");
  if (fault.kind == FaultKind::stop_rank) stop_process(pid, fault.span);
  if (fault.kind == FaultKind::hang_stage) {
    rank.hang();
    later(fault.span * 3, [this, &rank] {
      if (processes_.is_alive(rank.pid())) rank.let_go();
    });
  }
  if (fault.kind == FaultKind::slow_rank) {
    processes_.slow_down(pid, 2 + static_cast<std::uint32_t>(fault.target % 19));
    later(fault.span, [this, pid] { processes_.slow_down(pid, 1); });
  }
  return true;
}

bool Cluster::strike_node(const Fault& fault) {
  const std::vector<Node*> nodes = living_nodes();
  if (nodes.empty()) return false;
  const Node& node = *nodes[fault.target % nodes.size()];
  const Pid pid = node.pid();
  const MachineId machine = processes_.machine_of(pid);
  switch (fault.kind) {
    case FaultKind::kill_node: {
      const std::uint32_t slots = node.options().slots;
      const std::string rack = node.options().rack;
      end_process(pid, fault.target % 2 == 0 ? "was killed by signal 9 (Killed)" : "reset");
      // Somebody starts it again, as a new one.
      if (fault.span > Duration{}) {
        later(fault.span, [this, machine, slots, rack] { add_node_on(machine, slots, rack); });
      }
      return true;
    }
    case FaultKind::lose_node: lose_machine(machine); return true;
    case FaultKind::stop_node: stop_process(pid, fault.span); return true;
    default: break;
  }
  const std::optional<LinkId> link = link_of(node);
  if (!link || !links_.is_up(*link, pid)) return false;
  if (fault.kind == FaultKind::delay_node) {
    const Pid other = links_.peer(*link, pid);
    const Duration extra{static_cast<std::int64_t>(fault.target * 7919 % 1000) * 1'000'000};
    links_.delay(*link, pid, extra);
    links_.delay(*link, other, extra);
    later(fault.span, [this, l = *link, pid, other] {
      links_.delay(l, pid, {});
      links_.delay(l, other, {});
    });
    return true;
  }
  const Pid from = fault.kind == FaultKind::cut_from_node ? pid : links_.peer(*link, pid);
  links_.cut(*link, from);
  later(fault.span, [this, l = *link, from] { links_.mend(l, from); });
  return true;
}

bool Cluster::strike_supervisor(const Fault& fault) {
  if (supervisor_ == nullptr) return false;
  const Pid pid = supervisor_->pid();
  if (fault.kind == FaultKind::stop_supervisor) {
    stop_process(pid, fault.span);
    return true;
  }
  end_process(pid, fault.target % 2 == 0 ? "was killed by signal 9 (Killed)" : "reset");
  later(fault.span, [this] {
    if (supervisor_ == nullptr) start_supervisor();
  });
  return true;
}

bool Cluster::strike_data(const Fault& fault) {
  const std::vector<Rank*> ranks = living_ranks();
  if (ranks.size() < 2) return false;
  const Rank& a = *ranks[fault.target % ranks.size()];
  const Rank& b = *ranks[fault.target / 7 % ranks.size()];
  const MachineId from = processes_.machine_of(a.pid()), to = processes_.machine_of(b.pid());
  if (fault.kind == FaultKind::repeat_data) {
    fabric_.repeat_next();
    return true;
  }
  if (from == to) return false;
  if (fault.kind == FaultKind::break_data) {
    fabric_.break_connection(a.id(), b.id());
    return true;
  }
  fabric_.cut(from, to);
  later(fault.span, [this, from, to] { fabric_.mend(from, to); });
  return true;
}

void Cluster::command(const Fault& fault) {
  Supervisor& supervisor = *supervisor_;
  if (fault.kind == FaultKind::pause) {
    supervisor.pause();
    later(fault.span, [this] {
      if (supervisor_ != nullptr && !processes_.is_stopped(supervisor_->pid())) supervisor_->resume();
    });
    return;
  }
  if (fault.kind == FaultKind::drain) {
    const auto& members = supervisor.members().members();
    if (members.size() < 2) return;  // a job is not drained of its last node
    supervisor.drain(std::next(members.begin(), static_cast<std::ptrdiff_t>(fault.target % members.size()))->first);
    return;
  }
  if (supervisor.machine() == nullptr || !supervisor.machine()->plan()) return;
  const std::vector<PlanRank> ranks = supervisor.machine()->plan()->ranks;
  supervisor.evict(ranks[fault.target % ranks.size()].rank);
}

// Everything works from now on, and there are slots for whoever is missing.
void Cluster::heal() {
  if (std::exchange(healed_, true)) return;
  tell("everything works again");
  for_phases_.clear();
  for (Pid pid = 1; pid < processes_.count(); ++pid) {
    if (!processes_.is_alive(pid)) continue;
    processes_.slow_down(pid, 1);
    go_on(pid);
  }
  starts_are_slow_until_ = {};
  for (Rank* rank : living_ranks()) rank->let_go();
  links_.mend_all();
  for (MachineId a = 0; a < next_machine_; ++a) {
    for (MachineId b = 0; b < next_machine_; ++b) fabric_.mend(a, b);
  }
  if (supervisor_ == nullptr) start_supervisor();
  supervisor_->resume();
  std::uint32_t slots = 0;
  for (const Node* node : living_nodes()) slots += node->has_ended() ? 0 : node->options().slots;
  std::uint32_t wanted = std::max<std::uint32_t>(2, job_.shape.ranks);
  for (; slots < wanted; ++slots) add_node(1);
}

}  // namespace kintsugi::sim::protocol
