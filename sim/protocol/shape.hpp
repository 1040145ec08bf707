// One simulated job and the cluster it begins on.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/control/job_machine.hpp"
#include "engine/model/layout.hpp"

namespace kintsugi::sim::protocol {

struct Shape {
  std::uint64_t seed = 0;
  std::vector<std::uint32_t> slots{2, 1};  // by node that joins at the start
  std::uint32_t racks = 0;                 // nodes are dealt to so many, in turn; 0: no labels
  std::uint32_t ranks = 0;                 // asked for; 0: as many as there are slots
  std::int64_t blocks = 1, lanes = 4, stages = 1, per_lane = 1;
  bool tied = true;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  std::int64_t replicas = 2;
  std::int64_t steps = 6;
  std::int64_t orphan_limit = 30;  // seconds
  std::uint32_t skip_one_in = 16;  // of so many steps one has a gradient that is not finite; 0: none
  Duration step_budget = seconds(12);
  // How long a rank takes for one layer of one microbatch, for an update, to start.
  Duration layer = milliseconds(1), apply = milliseconds(2), process_start = milliseconds(40);
};

JobConfig job_of(const Shape& shape);

// What every process of a run knows.
struct Job {
  explicit Job(const Shape& shape);
  Shape shape;
  JobConfig config;
  ModelLayout layout;

  std::uint32_t microbatches() const { return static_cast<std::uint32_t>(config.batch.sequences); }
  // The step's gradient of shard 0 is not finite.
  bool is_skipped(Step step) const;
};

constexpr JobId kJob{1};
constexpr Lineage kLineage{1};

}  // namespace kintsugi::sim::protocol
