// What `status` shows of a job; its supervisor sends it at each change.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/job_account.hpp"
#include "engine/control/job_machine.hpp"

namespace kintsugi::actors {

struct JobView {
  struct Rank {
    RankId rank;
    NodeId node;
    std::uint32_t pid = 0;
    std::uint32_t primaries = 0, replicas = 0;  // shards of the plan
  };
  JobId job;
  std::string name, phase, reason;  // reason: of the plan
  Generation generation;
  std::uint64_t incidents = 0;
  std::uint64_t step = 0, steps = 0;
  double loss = 0, tokens_per_second = 0;
  std::vector<Rank> ranks;
};
// `pids`: of rank processes, as far as they are known.
JobView make_view(const JobMachine& machine, const JobAccount& account, const std::map<RankId, std::uint32_t>& pids);

}  // namespace kintsugi::actors
