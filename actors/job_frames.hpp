// What a job's supervisor says to nodes and to the client that follows, as frames: what is the job's own is filled in here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "actors/control_message.hpp"
#include "actors/job_admission.hpp"
#include "engine/control/job_machine.hpp"

namespace kintsugi::actors {

class JobFrames {
 public:
  using Fill = std::function<void(schemas::Message::Builder)>;
  using UcxAddress = std::vector<kj::byte>;

  // `job` outlives what is made here.
  JobFrames(JobId id, const AdmittedJob& job) : id_(id), job_(job) {}

  // To nodes.
  Fill start_ranks(std::vector<RankId> ranks, std::uint32_t threads) const;
  // `known`: of later steps ranks give their records.
  Fill fence(const job_effect::Fence& e, Step known) const;
  Fill intend(Generation generation) const;
  Fill kill_rank(const job_effect::KillRank& e) const;
  // `addresses`: in the order of the plan's ranks.
  Fill prepare(const job_effect::Prepare& e, std::vector<UcxAddress> addresses) const;
  Fill resume(Generation generation) const;
  Fill save(std::string staging) const;
  Fill stop(std::string why) const;
  Fill restate() const;
  Fill steps_wanted(Step after, Step up_to) const;

  // To the follower.
  Fill note(std::string text) const;
  Fill step(const DecisionRecord& record, double tokens_per_second, std::uint32_t ranks) const;
  Fill ended(const job_effect::Ended& e, std::string report) const;

  std::uint64_t last_step() const { return static_cast<std::uint64_t>(job_.config.steps); }

 private:
  const JobId id_;
  const AdmittedJob& job_;
};

// Of one node that has outlived a supervisor. `record`: the newest of its stepHistory. Error{fail_link}: no plan at all.
Result<job_event::NodeRestated> read_job_state(schemas::JobState::Reader in, NodeId node,
                                               std::optional<DecisionRecord> record);

// The one budget that all deadlines of a job derive from.
Duration step_budget(const JobConfig& job);
// What its machine is asked for. `epoch`: of the supervisor.
JobRequest job_request(JobId job, std::uint32_t epoch, const AdmittedJob& admitted);

}  // namespace kintsugi::actors
