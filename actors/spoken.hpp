// What ranks of one node have said to the supervisor of their job and what it must hear again when it is not the one to whom
// it was said: a supervisor that is lost takes with it what it was told.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "actors/control_message.hpp"
#include "engine/control/decision_record.hpp"

namespace kintsugi::actors {

class Spoken {
 public:
  // A day of steps of a second, as the report keeps; past it the oldest are forgotten.
  static constexpr std::size_t kKeptSteps = 40'000;

  // Every frame of a rank, as it passes. Under guarded().
  void keep(RankId rank, const ControlMessage& message);
  // What a gone rank knew; those steps of which nobody here had heard, as if the rank had said so as root.
  std::set<Step> keep_unheard(const std::vector<DecisionRecord>& records);
  // What was said of an older generation's end is of no use.
  void fenced() { ends_.clear(); }
  void forget(RankId rank);

  std::uint32_t pid(RankId rank) const;
  std::string kernel_variant(RankId rank) const;  // empty: no hello yet

  using Send = std::function<void(transport::Frame)>;
  // stepHistory frames, the oldest first: what was said as root, for a supervisor that may not have heard it.
  void send_steps(JobId job, const Send& send) const;
  // Of all that is known here, steps after `after` until `up_to`; one frame at least.
  void send_steps_between(JobId job, Step after, Step up_to, const Send& send) const;
  // finished and failed, as they were.
  void send_ends(const Send& send) const;
  // The newest processActors of each.
  void send_actors(const Send& send) const;

 private:
  struct Known {
    DecisionRecord record;
    double seconds = 0;
    bool as_root = false;  // said by the root, which told the supervisor as well
  };
  void keep(schemas::StepDone::Reader step, bool as_root);

  std::map<RankId, ControlMessage> hellos_;
  std::map<RankId, ControlMessage> actors_;
  std::map<RankId, ControlMessage> ends_;  // of the generation in force: the last of finished or failed
  std::map<Step, Known> steps_;            // that became final while a rank here took part
};

}  // namespace kintsugi::actors
