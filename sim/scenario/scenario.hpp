// A scenario: a workload on a cluster, what goes wrong there, and how it is met. One YAML file, read by `kintsugi sim`
// and meant for live clusters too. Times are seconds in here; in the file they bear a unit: 54d, 18m, 2.5s.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/distributions.hpp"
#include "base/result.hpp"
#include "engine/model/job_config.hpp"
#include "sim/cost/system.hpp"

namespace kintsugi::sim {

// What is struck, and so who notices how fast.
enum class FaultClass : std::uint8_t {
  process,         // of a rank: its node stays, with the memory that outlives processes
  device,          // its node leaves until it is repaired
  node,            // with its memory
  rack,            // all nodes of it
  network_switch,  // "switch": all nodes behind it
  network,         // a link: work fails, nobody is lost
  supervisor,      // of the cluster: training goes on, nobody decides
  corruption,      // a copy of state differs at the next vote
  straggler,       // a node that works slowly until it is drained
  maintenance,     // a node that is drained before it goes
};
constexpr int kFaultClasses = 10;
const char* to_string(FaultClass kind);
std::optional<FaultClass> fault_class_from(std::string_view name);

struct Workload {
  ModelConfig model;
  BatchConfig batch;
  std::int64_t tensor = 1;  // ranks that work a cell together: one member of a plan
  std::int64_t stages = 1;
  std::int64_t interleave = 1;  // virtual stages a rank
  double efficiency = 0.5;      // of a rank's peak, in its kernels
};

struct ClusterShape {
  std::uint32_t nodes = 0;   // that the job asks for
  std::uint32_t spares = 0;  // provisioned beside them
  std::uint32_t ranks_per_node = 8;
  std::uint32_t racks = 0, switches = 0, pods = 1;  // provisioned nodes fall into them in equal contiguous runs
  SystemFigures system;

  std::uint32_t provisioned() const { return nodes + spares; }
  std::uint32_t rack_of(std::uint32_t node) const;
  std::uint32_t switch_of(std::uint32_t node) const;
};

struct FaultSource {
  std::string cause;  // for people, and what losses are booked under
  FaultClass kind = FaultClass::node;
  // Exactly one of these four says when.
  std::optional<double> at;              // seconds
  std::optional<std::uint64_t> at_step;  // when that many steps are committed
  std::optional<Distribution> gap;       // seconds between two, over the whole fleet
  double during_recovery = 0;            // the chance that a recovery is struck
  std::optional<std::uint32_t> target;   // a node, rack or switch; else drawn
  std::uint32_t burst = 1;               // faults that come together
  double burst_within = 0;               // seconds
  bool hang = false;                     // noticed by silence alone
  double slowdown = 2;                   // of a straggler: its work takes so many times as long
  bool operator==(const FaultSource&) const = default;
};

// One line of a trace: `node` is out from `start` to `end`.
struct TraceEvent {
  double start = 0, end = 0;
  std::uint32_t node = 0;
  FaultClass kind = FaultClass::node;
  auto operator<=>(const TraceEvent&) const = default;
};

struct Lemons {
  std::uint32_t count = 0;  // nodes that fail more often; drawn from the seed
  double share = 0;         // of the faults of single nodes that strike them
};

// Nodes that come beside the provisioned ones, and leave again after a notice.
struct SpotArrivals {
  std::optional<Distribution> gap;  // seconds between arrivals
  Distribution stay = {};           // seconds
  double notice = 30;               // seconds between the warning and the end
  std::uint32_t at_most = 0;        // at once
};

// What the other policies cost (sim/policy).
struct RestartFigures {
  double interval = 3600;         // seconds of training between checkpoints
  double write = 0;               // seconds that training waits for one
  double restart = 600;           // seconds from the decision to the first new step
  double timeout = 0;             // seconds until a fault is noticed
  bool productive_clock = false;  // faults come in time that is trained; else on the wall
};
struct GroupFigures {
  double stall = 180;   // seconds that all wait when a group drops out
  double rejoin = 600;  // seconds until the group is back, and its spare's start
};

struct PolicyFigures {
  double process_detection = 0.05;  // seconds: a child's exit, a link reset
  double hang_detection = 15;       // seconds: silence, no progress
  double straggler_detection = 300;
  double rebuild = 1;         // seconds: communicators of a changed generation
  double process_start = 30;  // seconds: a new rank until its hello
  double orphan_limit = 600;
  double supervisor_restart = 10;
  std::int64_t replicas = 2;
  double checkpoint_interval = 1800;  // seconds: durable ones, written from replicas
  double restore = 300;               // seconds: back to a durable one
  RestartFigures restart;
  RestartFigures snapshot{.interval = 60, .restart = 300};
  GroupFigures groups;
};

struct Scenario {
  std::string name;
  std::uint64_t seed = 0;
  double duration = 0;  // seconds
  Workload workload;
  ClusterShape cluster;
  PolicyFigures policy;
  std::vector<FaultSource> faults;
  Distribution repair[kFaultClasses];  // by FaultClass, seconds
  Lemons lemons;
  SpotArrivals spot;
  std::vector<TraceEvent> trace;  // by start

  std::uint64_t ranks() const { return std::uint64_t{cluster.nodes} * cluster.ranks_per_node; }
  // Of a plan: a tensor-parallel group is one.
  std::uint32_t members_per_node() const {
    return cluster.ranks_per_node / static_cast<std::uint32_t>(workload.tensor);
  }
};

// Error{tell_user} with "FILE:LINE: key: what, and what to do". Traces are read relative to the scenario's folder.
Result<Scenario> parse_scenario(const std::string& text, const std::string& source);
Result<Scenario> load_scenario(const std::string& path);

// "start,end,node,class" with that header, or a JSON list of such objects; sorted by start, without an overlap on a node.
// Error{tell_user} with file and line (CSV) or element (JSON).
Result<std::vector<TraceEvent>> parse_trace_csv(const std::string& text, const std::string& source);
Result<std::vector<TraceEvent>> parse_trace_json(const std::string& text, const std::string& source);

}  // namespace kintsugi::sim
