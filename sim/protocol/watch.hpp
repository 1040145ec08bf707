// What must hold at every moment, looked at from outside by somebody who sees everything. The first violation ends the run.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "engine/control/recovery.hpp"
#include "sim/protocol/memory.hpp"
#include "sim/protocol/oracle.hpp"

namespace kintsugi::sim::protocol {

class Watch {
 public:
  explicit Watch(const Job& job) : oracle_(job), job_(job) {}

  // --- what processes do ----------------------------------------------------------------------------------------------
  void record_made(const DecisionRecord& record);
  // A copy is STABLE from now on: its content is what the fault-free run has at that version.
  void copy_is_stable(RankId holder, const CopyMemory& copy);
  // A gradient is complete: of every microbatch once.
  void reduced(RankId primary, ShardId shard, Step step, const Sum& sum, Mark gradient);
  void sums_are_added(RankId who, const Sum& left, const Sum& right);
  void prepared_by(RankId rank, Generation generation, const Digest& plan);
  void planned(Generation generation, const Digest& plan);
  void fenced(Generation generation);
  // The newest generation that is durable, when a member is told of `told`.
  void promised(Generation durable, Generation told);
  void final_is(Step step);
  void finished(const Digest& digest);
  // A rank acts on a message of `message` while it has promised `promised`.
  void accepted(RankId rank, Generation promised, Generation message);

  // --- what is lost ---------------------------------------------------------------------------------------------------
  // A failure domain lost a process, or all. Back to none at every generation that resumes: replicas are whole again.
  void domain_hurt(std::uint32_t machine) { hurt_.insert(machine); }
  // `still`: those whose end is not known yet to whoever made the plan.
  void replicas_whole(std::uint16_t failure_domains, std::set<std::uint32_t> still) {
    hurt_ = std::move(still);
    tolerated_ = static_cast<std::uint32_t>(failure_domains) - 1;
    held_ = true;
  }
  // Something was done to the cluster that no client asked for.
  void fault_struck() { struck_ = true; }
  // A rank that is fenced has begun a step and not ended it.
  void work_is_interrupted();
  void job_lost_state(const std::string& why);
  void went_back(Step from, Step to);

  void fail(const std::string& what) {
    if (!violation_) violation_ = what;
  }
  const std::optional<std::string>& violation() const { return violation_; }
  Oracle& oracle() { return oracle_; }
  Step newest_final() const { return newest_final_; }
  bool is_loss_excused() const { return hurt_.size() > tolerated_ || !held_; }

 private:
  Oracle oracle_;
  const Job& job_;
  std::optional<std::string> violation_;
  std::map<Step, DecisionRecord> records_;  // the first made of each step
  std::map<Generation, Digest> plans_;
  Generation newest_fence_;
  Step newest_final_;
  std::set<std::uint32_t> hurt_;
  std::uint32_t tolerated_ = 0;
  bool held_ = false;
  bool struck_ = false;
};

}  // namespace kintsugi::sim::protocol
