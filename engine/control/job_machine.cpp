#include "engine/control/job_machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kintsugi {

using namespace job_event;  // NOLINT(google-build-using-namespace): the machine's own alphabet
namespace effect = job_effect;

const char* to_string(JobPhase phase) {
  switch (phase) {
    case JobPhase::waiting: return "waiting for slots";
    case JobPhase::starting: return "starting ranks";
    case JobPhase::preparing: return "preparing";
    case JobPhase::running: return "running";
    case JobPhase::saving: return "saving";
    case JobPhase::stopping: return "stopping";
    case JobPhase::ended: return "ended";
  }
  KINTSUGI_UNREACHABLE();
}

JobDeadlines JobDeadlines::from_budget(Duration step_budget) {
  // Preparing initialises all state and gathers all weights; saving writes it once: each is worth a few long steps.
  // Two seconds of stopping leave a rank 1.5 s to end by itself before it is killed.
  return {step_budget * 2, step_budget, step_budget * 2, step_budget, step_budget * 4, milliseconds(2'000)};
}

JobMachine::JobMachine(JobRequest request) : request_(std::move(request)) {}

JobEffects JobMachine::start(Instant now) {
  KINTSUGI_ASSERT(phase_ == JobPhase::waiting && deadline_number_ == 0);
  return enter(JobPhase::waiting, request_.deadlines.waiting, now, {});
}

JobEffects JobMachine::step(const JobEvent& event, Instant now) {
  if (phase_ == JobPhase::ended) return drop();
  return std::visit([&](const auto& e) { return on(e, now); }, event);
}

JobEffects JobMachine::drop() {
  ++dropped_;
  return {};
}

JobEffects JobMachine::enter(JobPhase phase, Duration limit, Instant now, JobEffects effects) {
  phase_ = phase;
  effects.push_back(effect::ArmDeadline{++deadline_number_, now + limit});
  return effects;
}

std::uint64_t JobMachine::cells() const {
  return static_cast<std::uint64_t>(request_.config.parallel.stages.value_or(1) * request_.config.batch.lanes);
}

std::string JobMachine::name_of(RankId rank) const {
  const auto node = nodes_.find(rank_nodes_.at(rank.value));
  return fmt::format("rank {} on node {}", rank.value,
                     node == nodes_.end() ? to_string(rank_nodes_[rank.value]) : node->second.name);
}

std::string JobMachine::missing(const std::set<RankId>& have) const {
  std::string names;
  for (std::uint32_t r = 0; r < rank_count(); ++r) {
    if (have.contains({r})) continue;
    names += (names.empty() ? "" : ", ") + name_of({r});
  }
  return names;
}

JobEffects JobMachine::on(const NodeReady& e, Instant now) {
  nodes_[e.node] = {e.name, e.slots};
  return phase_ == JobPhase::waiting ? try_start(now) : JobEffects{};
}

JobEffects JobMachine::try_start(Instant now) {
  std::uint64_t slots = 0;
  for (const auto& [id, node] : nodes_) slots += node.slots;
  const std::uint64_t wanted =
      request_.ranks != 0 ? request_.ranks : std::max<std::uint64_t>(1, std::min(slots, cells()));
  if (nodes_.size() < request_.nodes) {
    return {effect::Note{fmt::format("waiting: {} of {} nodes", nodes_.size(), request_.nodes)}};
  }
  if (slots < wanted) {
    return {effect::Note{fmt::format("waiting: {} of {} slots on {} nodes", slots, wanted, nodes_.size())}};
  }
  for (const auto& [id, node] : nodes_) {
    for (std::uint32_t s = 0; s < node.slots && rank_nodes_.size() < wanted; ++s) rank_nodes_.push_back(id);
  }
  return enter(JobPhase::starting, request_.deadlines.starting, now,
               {effect::Note{fmt::format("starting {} ranks", wanted)}, effect::StartRanks{rank_nodes_}});
}

JobEffects JobMachine::on(const RankUp& e, Instant now) {
  if (phase_ != JobPhase::starting || e.rank.value >= rank_count()) return drop();
  if (!kernel_variant_) kernel_variant_ = e.kernel_variant;
  if (*kernel_variant_ != e.kernel_variant) {
    return stop(
        1,
        fmt::format("{} computes with kernel variant '{}', the others with '{}': bits would depend on the plan; "
                    "use machines of one kind for a job",
                    name_of(e.rank), e.kernel_variant, *kernel_variant_),
        now);
  }
  up_.insert(e.rank);
  return up_.size() == rank_count() ? prepare(now) : JobEffects{};
}

JobEffects JobMachine::prepare(Instant now) {
  const PlanRequest request{request_.job, request_.lineage, request_.generation, rank_nodes_};
  Result<Plan> plan = make_plan(request, request_.config, ModelLayout(request_.config.model));
  if (!plan) return stop(2, plan.error().message, now);
  plan_ = std::move(*plan);
  return enter(JobPhase::preparing, request_.deadlines.preparing, now,
               {effect::Note{"preparing: " + plan_->reason}, effect::Prepare{*plan_}});
}

JobEffects JobMachine::on(const RankPrepared& e, Instant now) {
  if (phase_ != JobPhase::preparing || e.rank.value >= rank_count() || e.generation != request_.generation)
    return drop();
  KINTSUGI_ASSERT_MSG(e.plan == plan_->digest(), "a rank prepared another plan under the same generation");
  if (prepared_.empty()) step_ = e.step;
  if (e.step != step_) {
    return stop(1,
                fmt::format("{} holds state of step {}, the others of step {}; resume from one directory that all "
                            "nodes see",
                            name_of(e.rank), e.step.value, step_.value),
                now);
  }
  prepared_.insert(e.rank);
  if (prepared_.size() < rank_count()) return {};
  return enter(JobPhase::running, request_.deadlines.step, now, {effect::Resume{request_.generation}});
}

JobEffects JobMachine::on(const StepFinal& e, Instant now) {
  const DecisionRecord& r = e.record;
  const bool ours = r.job == request_.job && r.lineage == request_.lineage && r.generation == request_.generation;
  if (phase_ != JobPhase::running || !ours || r.step.value != step_.value + 1) return drop();
  step_ = r.step;
  return enter(JobPhase::running, request_.deadlines.step, now, {effect::Report{r}});
}

JobEffects JobMachine::on(const RankFinished& e, Instant now) {
  if (phase_ != JobPhase::running || e.rank.value >= rank_count()) return drop();
  if (!final_digest_) final_digest_ = e.digest;
  KINTSUGI_ASSERT_MSG(*final_digest_ == e.digest, "ranks ended with different digests of the state");
  finished_.insert(e.rank);
  if (finished_.size() < rank_count()) return {};
  if (!request_.save) return stop(0, "", now);
  return enter(JobPhase::saving, request_.deadlines.saving, now, {effect::Note{"saving"}, effect::Save{}});
}

JobEffects JobMachine::on(const RankSaved& e, Instant) {
  if (phase_ != JobPhase::saving || e.rank.value >= rank_count()) return drop();
  saved_.insert(e.rank);
  return saved_.size() == rank_count() ? JobEffects{effect::CommitSave{}} : JobEffects{};
}

JobEffects JobMachine::on(const SaveCommitted& e, Instant now) {
  if (phase_ != JobPhase::saving) return drop();
  return e.outcome ? stop(0, "", now) : stop(1, e.outcome.error().message, now);
}

JobEffects JobMachine::on(const RankDown& e, Instant now) {
  if (e.rank.value >= rank_count()) return drop();
  down_.insert(e.rank);
  const std::string why = fmt::format("{} {}", name_of(e.rank), e.why);
  if (phase_ == JobPhase::stopping) {
    if (cause_is_hearsay_ && !e.expected) {
      why_ = why;
      cause_is_hearsay_ = false;
    }
    return end_if_all_down();
  }
  return stop(1, why, now);
}

JobEffects JobMachine::on(const RankFailed& e, Instant now) {
  if (e.rank.value >= rank_count()) return drop();
  if (phase_ == JobPhase::stopping) return drop();
  // The loss of a peer is hearsay: the peer's own end, if it comes, names the culprit better.
  const bool hearsay = e.error.action == ErrorAction::end_generation;
  // Configuration and input show while ranks prepare; from then on what goes wrong is the job's failure.
  const bool input = e.error.action == ErrorAction::tell_user && phase_ == JobPhase::preparing;
  JobEffects effects = stop(input ? 2 : 1, fmt::format("{}: {}", name_of(e.rank), e.error.message), now);
  cause_is_hearsay_ = hearsay;
  return effects;
}

JobEffects JobMachine::on(const NodeLost& e, Instant now) {
  const auto node = nodes_.find(e.node);
  if (node == nodes_.end()) return drop();
  const std::string why = fmt::format("node {} is lost: {}", node->second.name, e.why);
  bool holds_ranks = false;
  for (std::uint32_t r = 0; r < rank_count(); ++r) {
    if (rank_nodes_[r] != e.node) continue;
    holds_ranks = true;
    down_.insert({r});  // its rank processes die with it, by their parent-death signal
  }
  if (!holds_ranks) {
    nodes_.erase(node);
    return {};
  }
  if (phase_ == JobPhase::stopping) {
    if (cause_is_hearsay_) why_ = why;
    cause_is_hearsay_ = false;
    return end_if_all_down();
  }
  return stop(1, why, now);
}

JobEffects JobMachine::on(const Cancel& e, Instant now) {
  if (phase_ == JobPhase::stopping) return drop();
  return stop(e.exit_code, e.why, now);
}

JobEffects JobMachine::on(const DeadlinePassed& e, Instant now) {
  if (e.number != deadline_number_) return drop();
  switch (phase_) {
    case JobPhase::waiting:
      return stop(3, "not enough slots joined in time: start more nodes with `kintsugi join`, or ask for fewer ranks",
                  now);
    case JobPhase::starting: return stop(1, "no hello in time from " + missing(up_), now);
    case JobPhase::preparing: return stop(1, "not prepared in time: " + missing(prepared_), now);
    case JobPhase::running: return stop(1, fmt::format("step {} did not become final in time", step_.value + 1), now);
    case JobPhase::saving: return stop(1, "not saved in time: " + missing(saved_), now);
    case JobPhase::stopping:
      phase_ = JobPhase::ended;
      return {effect::Ended{
          exit_code_ == 0 ? 1 : exit_code_,
          fmt::format("{}{}these processes did not end in time: {}", why_, why_.empty() ? "" : "; ", missing(down_))}};
    case JobPhase::ended: break;
  }
  KINTSUGI_UNREACHABLE();
}

JobEffects JobMachine::stop(int exit_code, std::string why, Instant now) {
  KINTSUGI_ASSERT(phase_ != JobPhase::stopping && phase_ != JobPhase::ended);
  exit_code_ = exit_code;
  why_ = std::move(why);
  JobEffects effects = enter(JobPhase::stopping, request_.deadlines.stopping, now,
                             {effect::Stop{why_.empty() ? "the job is done" : why_}});
  for (JobEffect& e : end_if_all_down()) effects.push_back(std::move(e));
  return effects;
}

JobEffects JobMachine::end_if_all_down() {
  if (phase_ != JobPhase::stopping || down_.size() < rank_count()) return {};
  phase_ = JobPhase::ended;
  return {effect::Ended{exit_code_, why_}};
}

}  // namespace kintsugi
