#include "sim/protocol/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kintsugi::sim::protocol {

namespace {
// Events that wait at once in the largest cluster of a swarm stay under a tenth of it.
constexpr std::size_t kMostEvents = 200'000;
constexpr LinkTimes kBetweenMachines{{150'000}, {2'500'000}};
// After everything works again: several times the longest chain of deadlines.
constexpr std::int64_t kBudgetsToTheEnd = 40;
}  // namespace

Cluster::Cluster(const Shape& shape, std::vector<Fault> faults, Trace trace)
    : job_(shape),
      faults_(std::move(faults)),
      trace_(std::move(trace)),
      processes_(clock_, kMostEvents),
      links_(processes_, shape.seed),
      fabric_(processes_, shape.seed),
      watch_(job_) {
  context_ = std::make_unique<Context>(
      Context{job_, processes_, links_, fabric_, watch_,
              [this](RankId rank, MachineId machine) -> Rank& { return start_rank(rank, machine); },
              [this](Pid pid, const std::string& why) { end_process(pid, why); },
              [this](LinkId link) { watch_.domain_hurt(machine_of_link_.at(link)); },
              [this](const Plan& plan) {
                std::set<std::uint32_t> unsound;
                for (const PlanRank& r : plan.ranks) {
                  if (!is_sound(r)) unsound.insert(processes_.machine_of(fabric_.pid_of(r.rank)));
                }
                watch_.replicas_whole(plan.failure_domains(), std::move(unsound));
              },
              [this] { return std::max(job_.shape.process_start, starts_are_slow_until_ - clock_.now()); }});
  register_process(kWorld, Role::world, 0);
  start_supervisor();
  for (const std::uint32_t slots : shape.slots) add_node(slots);
  for (const Fault& fault : faults_) {
    if (fault.phase)
      for_phases_.push_back(fault);
    else if (fault.event == 0)
      processes_.post(kWorld, fault.at, kFault, static_cast<std::uint64_t>(fault.kind),
                      [this, fault] { strike(fault); });
  }
}

Cluster::~Cluster() {
  for (const auto& rank : ranks_) rank->die();
}

void Cluster::tell(const std::string& line) {
  if (trace_) trace_(fmt::format("{:12.6f}  {}", Duration{clock_.now().ns}.seconds(), line));
}

void Cluster::register_process(Pid pid, Role role, std::size_t index) {
  KINTSUGI_ASSERT(pid == roles_.size());
  roles_.push_back({role, index});
}

void Cluster::later(Duration after, std::function<void()> act) {
  processes_.post(kWorld, clock_.now() + after, kFault, 0, std::move(act));
}

void Cluster::start_supervisor() {
  const Pid pid = processes_.start(0);
  register_process(pid, Role::supervisor, supervisors_.size());
  supervisors_.push_back(std::make_unique<Supervisor>(*context_, pid, Incarnation{next_incarnation_++}, disk_));
  supervisor_ = supervisors_.back().get();
  tell("a supervisor starts");
  supervisor_->begin();
}

void Cluster::add_node(std::uint32_t slots) {
  const MachineId machine = next_machine_++;
  const std::uint32_t racks = job_.shape.racks;
  add_node_on(machine, slots, racks == 0 ? "" : fmt::format("r{}", machine % racks));
}

void Cluster::add_node_on(MachineId machine, std::uint32_t slots, const std::string& rack) {
  const Pid pid = processes_.start(machine);
  register_process(pid, Role::node, nodes_.size());
  nodes_.push_back(std::make_unique<Node>(
      *context_, NodeOptions{fmt::format("m{}", machine), rack, slots, Incarnation{next_incarnation_++}}, pid,
      [this](Node& node) { return dial(node); }));
  node_of_machine_[machine] = pid;
  tell(fmt::format("node m{} starts with {} slots", machine, slots));
  processes_.post(pid, clock_.now(), kStarted, pid, [node = nodes_.back().get()] { node->begin(); });
}

std::optional<LinkId> Cluster::dial(Node& node) {
  if (supervisor_ == nullptr || processes_.is_stopped(supervisor_->pid())) return std::nullopt;
  const LinkId link = links_.open(node.pid(), node, supervisor_->pid(), *supervisor_, kBetweenMachines);
  link_of_node_[node.pid()] = link;
  machine_of_link_[link] = processes_.machine_of(node.pid());
  node.on_link(link, supervisor_->incarnation());
  return link;
}

Rank& Cluster::start_rank(RankId rank, MachineId machine) {
  const Pid pid = processes_.start(machine);
  register_process(pid, Role::rank, ranks_.size());
  ranks_.push_back(std::make_unique<Rank>(*context_, rank, pid));
  if (!fabric_.attach(rank, pid, *ranks_.back()))
    watch_.fail(fmt::format("rank number {} was given twice", rank.value));
  tell(fmt::format("rank {} starts on m{}", rank.value, machine));
  return *ranks_.back();
}

void Cluster::end_process(Pid pid, const std::string& why, bool vanishes) {
  if (!processes_.is_alive(pid)) return;
  const auto [role, index] = roles_.at(pid);
  const MachineId machine = processes_.machine_of(pid);
  if (vanishes)
    links_.process_vanishes(pid);
  else
    links_.process_ends(pid, why == "reset");
  if (role == Role::rank) {
    Rank& rank = *ranks_[index];
    tell(fmt::format("rank {} ends: {}", rank.id().value, why));
    rank.die();
    processes_.end(pid);
    watch_.domain_hurt(machine);
    if (vanishes) return;
    fabric_.ended(rank.id());
    const Pid parent = node_of_machine_.at(machine);
    if (!processes_.is_alive(parent)) return;
    Node* const node = nodes_[roles_[parent].index].get();
    processes_.post(parent, clock_.now() + Duration{300'000}, kExit, pid,
                    [node, id = rank.id(), why] { node->on_rank_end(id, why); });
    return;
  }
  processes_.end(pid);
  if (role == Role::supervisor) {
    tell("the supervisor ends: " + why);
    supervisors_[index]->die();
    supervisor_ = nullptr;
    return;
  }
  tell(fmt::format("node m{} ends: {}", machine, why));
  watch_.domain_hurt(machine);
  // Its ranks by their parent-death signal.
  for (const auto& rank : ranks_) {
    if (processes_.machine_of(rank->pid()) == machine)
      end_process(rank->pid(), "was killed by signal 9 (Killed)", vanishes);
  }
}

void Cluster::lose_machine(MachineId machine) {
  lost_machines_.insert(machine);
  end_process(node_of_machine_.at(machine), "its machine is lost", true);
}

void Cluster::stop_process(Pid pid, Duration span) {
  if (processes_.is_stopped(pid)) return;
  links_.process_stops(pid);
  processes_.stop(pid);
  later(span, [this, pid] { go_on(pid); });
}

void Cluster::go_on(Pid pid) {
  if (!processes_.is_alive(pid) || !processes_.is_stopped(pid)) return;
  tell(fmt::format("process {} goes on", pid));
  links_.process_goes_on(pid);
  processes_.go_on(pid);
}

bool Cluster::is_sound(const PlanRank& member) const {
  const Pid pid = fabric_.pid_of(member.rank);
  if (!processes_.is_alive(pid) || processes_.is_stopped(pid)) return false;
  const Pid node = node_of_machine_.at(processes_.machine_of(pid));
  if (!processes_.is_alive(node) || processes_.is_stopped(node)) return false;
  const auto link = link_of_node_.find(node);
  return link != link_of_node_.end() && !links_.is_troubled(link->second);
}

RunReport Cluster::run(Instant heal_at) {
  later(heal_at - clock_.now(), [this] { heal(); });
  const Instant limit = heal_at + job_.shape.step_budget * kBudgetsToTheEnd;
  std::vector<Fault> by_event;
  for (const Fault& f : faults_) {
    if (f.event != 0 && !f.phase) by_event.push_back(f);
  }
  std::stable_sort(by_event.begin(), by_event.end(), [](const Fault& a, const Fault& b) { return a.event > b.event; });
  while (!watch_.violation()) {
    if (supervisor_ != nullptr && supervisor_->outcome()) break;
    if (clock_.now() > limit) {
      watch_.fail("no end is in sight, long after everything worked again");
      break;
    }
    while (!by_event.empty() && by_event.back().event <= processes_.queue().popped()) {
      if (!healed_) strike(by_event.back());
      by_event.pop_back();
    }
    if (!processes_.step()) {
      watch_.fail("nothing happens any more, and the job has not ended");
      break;
    }
    look_at_phase();
  }
  RunReport report{watch_.violation(), {}, processes_.queue().hash(), processes_.queue().popped(), {}, {}, struck_, {}};
  report.took = {clock_.now().ns};
  report.step = watch_.newest_final();
  if (supervisor_ != nullptr) {
    report.outcome = supervisor_->outcome();
    report.notes.assign(supervisor_->notes().begin(), supervisor_->notes().end());
  }
  return report;
}

void Cluster::look_at_phase() {
  if (supervisor_ == nullptr || supervisor_->machine() == nullptr) return;
  const JobPhase phase = supervisor_->machine()->phase();
  if (phase == last_phase_) return;
  last_phase_ = phase;
  tell(fmt::format("job: {} (generation {}, step {})", kintsugi::to_string(phase),
                   kintsugi::to_string(supervisor_->machine()->generation()),
                   supervisor_->machine()->final_step().value));
  if (healed_) return;
  std::erase_if(for_phases_, [&](const Fault& f) {
    if (*f.phase != phase || clock_.now() < f.at) return false;
    later(f.after, [this, f] {
      if (!healed_) strike(f);
    });
    return true;
  });
}

}  // namespace kintsugi::sim::protocol
