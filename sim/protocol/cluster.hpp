// A small cluster in virtual time: every process, link and message of a job's life, and what goes wrong in it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/protocol/fault.hpp"
#include "sim/protocol/node.hpp"
#include "sim/protocol/rank.hpp"
#include "sim/protocol/supervisor.hpp"

namespace kintsugi::sim::protocol {

struct RunReport {
  std::optional<std::string> violation;
  std::optional<Outcome> outcome;
  std::uint64_t hash = 0;  // of all events, in order
  std::uint64_t events = 0;
  Duration took;             // virtual
  Step step;                 // the newest that became final
  std::uint32_t faults = 0;  // that struck somebody
  std::vector<std::string> notes;
};

class Cluster {
 public:
  using Trace = std::function<void(const std::string& line)>;
  // `trace`: hears what happens, for people; may be empty.
  Cluster(const Shape& shape, std::vector<Fault> faults, Trace trace = nullptr);
  ~Cluster();

  // Until the job has ended or a rule is broken. From `heal` on everything works that can, and progress is required.
  RunReport run(Instant heal);

 private:
  enum class Role : std::uint8_t { world, supervisor, node, rank };
  struct Process {
    Role role = Role::world;
    std::size_t index = 0;  // in its table
  };

  void register_process(Pid pid, Role role, std::size_t index);
  void start_supervisor();
  void add_node(std::uint32_t slots);
  void add_node_on(MachineId machine, std::uint32_t slots, const std::string& rack);
  Rank& start_rank(RankId rank, MachineId machine);
  std::optional<LinkId> dial(Node& node);
  void end_process(Pid pid, const std::string& why, bool vanishes = false);
  void stop_process(Pid pid, Duration span);
  void go_on(Pid pid);
  void lose_machine(MachineId machine);
  bool is_sound(const PlanRank& member) const;

  // --- faults (cluster_faults.cpp) --------------------------------------------------------------------------------------
  void strike(const Fault& fault);
  bool strike_rank(const Fault& fault);
  bool strike_node(const Fault& fault);
  bool strike_supervisor(const Fault& fault);
  bool strike_data(const Fault& fault);
  void command(const Fault& fault);
  void heal();
  void look_at_phase();
  std::vector<Rank*> living_ranks();
  std::vector<Node*> living_nodes();
  std::optional<LinkId> link_of(const Node& node) const;
  void later(Duration after, std::function<void()> act);
  void tell(const std::string& line);

  const Job job_;
  std::vector<Fault> faults_;
  Trace trace_;
  VirtualClock clock_;
  Processes processes_;
  Links links_;
  Fabric fabric_;
  Watch watch_;
  Disk disk_;
  std::unique_ptr<Context> context_;
  std::vector<Process> roles_;  // by Pid
  std::vector<std::unique_ptr<Supervisor>> supervisors_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::map<MachineId, Pid> node_of_machine_;  // the newest node process there
  std::map<Pid, LinkId> link_of_node_;        // the newest
  std::map<LinkId, MachineId> machine_of_link_;
  std::set<MachineId> lost_machines_;
  Supervisor* supervisor_ = nullptr;  // that lives; null while there is none
  MachineId next_machine_ = 1;
  std::uint64_t next_incarnation_ = 1;
  std::vector<Fault> for_phases_;
  JobPhase last_phase_ = JobPhase::ended;
  std::uint32_t struck_ = 0;
  bool healed_ = false;
  Instant starts_are_slow_until_;
};

}  // namespace kintsugi::sim::protocol
