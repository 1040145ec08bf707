// A job's machine with thousands of members that do what they are told: what incidents are measured on.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "engine/control/job_machine.hpp"

namespace kintsugi::bench {

struct FleetShape {
  std::uint32_t members = 0;  // nodes with one rank each
  std::uint32_t stages = 16;
  std::uint32_t lanes_of_member = 1;  // of one stage
  std::uint32_t nodes_of_rack = 16;
};

// Of this process, which has one thread.
double cpu_seconds();

// A GPT-2-shaped job with about two shards a member, two copies of each.
JobConfig fleet_job(const FleetShape& shape);

class Fleet {
 public:
  Fleet(const FleetShape& shape, JobConfig job);

  // Nodes join, ranks say hello, the first generation is made, one step is final.
  void start();
  // Those nodes are lost within a step that everybody has begun and every other rank has finished but for the vote.
  struct Cost {
    std::size_t messages_in = 0, messages_out = 0;                      // through the root
    double lost = 0, reports = 0, decide = 0, prepared = 0, total = 0;  // CPU seconds in the machine
  };
  Cost lose(const std::vector<NodeId>& nodes);

  const JobMachine& machine() const { return machine_; }
  // What the last fence brought.
  const std::vector<RankReport>& reports() const { return reports_; }

 private:
  // One after the other; the machine's time counts, not that of making them.
  void feed(const std::vector<JobEvent>& events);
  void carry_out(const JobEffects& effects);
  void answer_fence(Cost& cost);
  void prepare_all(Cost& cost);
  void commit();
  std::vector<RankReport> write_reports() const;

  FleetShape shape_;
  JobMachine machine_;
  std::set<NodeId> nodes_;
  std::vector<PlanRank> starting_;
  std::optional<DecisionRecord> known_;
  std::optional<Plan> resumed_;
  std::vector<RankReport> reports_;
  std::size_t sent_ = 0, received_ = 0;
  double spent_ = 0;  // CPU seconds in the machine
};

}  // namespace kintsugi::bench
