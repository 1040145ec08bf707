// What outlives an incarnation of a job's supervisor. Its machine does not: it begins anew, with what is known here.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "actors/job_account.hpp"
#include "actors/job_journal.hpp"
#include "actors/job_supervisor.hpp"

namespace kintsugi::actors {

struct HeldJobSupervisor {
  HeldJobSupervisor(caf::actor its_cluster, JobParts its_parts)
      : cluster(std::move(its_cluster)),
        parts(std::move(its_parts)),
        account(parts.admitted, *parts.clock, parts.adoption ? parts.adoption->record : std::nullopt, parts.before) {}

  // What the next incarnation adopts; none: nothing was promised to anybody yet.
  std::optional<Adoption> what_is_known() const;

  caf::actor cluster;
  JobParts parts;
  JobAccount account;
  JobMemo memo;
  std::map<NodeId, NodeOffered> nodes;
  std::map<NodeId, std::uint32_t> threads;  // of each rank there
  std::set<NodeId> draining;                // asked for, and not over
  std::set<RankId> evicting;
  caf::actor coordinator;  // none: nothing is to be saved
  std::shared_ptr<std::atomic<bool>> save_cancelled = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace kintsugi::actors
