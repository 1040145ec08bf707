#include "engine/control/job_machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/mutant.hpp"
#include "base/probe.hpp"

namespace kintsugi {

using namespace job_event;  // NOLINT(google-build-using-namespace): the machine's own alphabet
namespace effect = job_effect;

const char* to_string(JobPhase phase) {
  switch (phase) {
    case JobPhase::waiting: return "waiting for slots";
    case JobPhase::adopting: return "adopting";
    case JobPhase::starting: return "starting ranks";
    case JobPhase::fencing: return "fencing";
    case JobPhase::preparing: return "preparing";
    case JobPhase::running: return "running";
    case JobPhase::paused: return "paused";
    case JobPhase::saving: return "saving";
    case JobPhase::stopping: return "stopping";
    case JobPhase::ended: return "ended";
  }
  KINTSUGI_UNREACHABLE();
}

JobDeadlines JobDeadlines::from_budget(Duration step_budget) {
  // Preparing initialises all state and gathers all weights; saving writes it once: each is worth a few long steps. A
  // fence waits for the operation in progress, a small part of a step. Two seconds of stopping leave a rank 1.5 s to end
  // by itself before it is killed. Four of adopting are twice what it takes a node to find a link dead.
  return {.waiting = step_budget * 2,
          .starting = step_budget,
          .fencing = {step_budget.ns / 4},
          .preparing = step_budget * 2,
          .step = step_budget,
          .saving = step_budget * 4,
          .stopping = milliseconds(2'000),
          .adopting = milliseconds(4'000)};
}

JobMachine::JobMachine(JobRequest request)
    : request_(std::move(request)),
      layout_(std::make_shared<const ModelLayout>(request_.config.model)),
      generation_{request_.epoch, 0} {}

JobEffects JobMachine::start(Instant now) {
  KINTSUGI_ASSERT(phase_ == JobPhase::waiting && deadline_number_ == 0);
  now_ = now;
  enter(JobPhase::waiting, request_.deadlines.waiting);
  return std::exchange(told_.effects, {});
}

JobEffects JobMachine::step(const JobEvent& event, Instant now) {
  now_ = now;
  if (phase_ == JobPhase::ended) {
    drop();
  } else {
    std::visit([&](const auto& e) { on(e); }, event);
  }
  return std::exchange(told_.effects, {});
}

void JobMachine::enter(JobPhase phase, Duration limit) {
  phase_ = phase;
  emit(effect::ArmDeadline{++deadline_number_, now_ + limit});
}

bool JobMachine::is_current(RankId rank, Generation generation) const {
  return generation == generation_ && members_.contains(rank);
}

bool JobMachine::steps_left() const {
  return step_.value < static_cast<std::uint64_t>(request_.config.steps);
}

// Every supervisor counts in its own epoch.
Generation JobMachine::next_generation() const {
  if (KINTSUGI_MUTANT(counts_generations_anew) && generation_.epoch < request_.epoch) return {generation_.epoch, 1};
  if (KINTSUGI_MUTANT(two_plans_in_a_generation) && phase_ == JobPhase::preparing) return generation_;
  if (generation_.epoch < request_.epoch) return {request_.epoch, 1};
  return {generation_.epoch, generation_.counter + 1};
}

std::string JobMachine::name_of(RankId rank) const {
  const bool known = ranks_.knows(rank) && ranks_.node_of(rank) != NodeId{};
  return known ? ranks_.name_of(rank) : "rank " + to_string(rank);
}

RankSet JobMachine::missing(const RankSet& have) const {
  return difference(members_, have);
}

void JobMachine::on(const RankPrepared& e) {
  const bool awaited = phase_ == JobPhase::preparing && is_current(e.rank, e.generation);
  if (!awaited || overdue_.contains(e.rank)) return drop();
  take_prepared({e.rank}, e.plan, e.step);
}

void JobMachine::on(const OthersPrepared& e) {
  if (phase_ != JobPhase::preparing || e.generation != generation_) return drop();
  const RankSet ranks = difference(missing(prepared_), together(e.but, overdue_));
  if (ranks.empty()) return drop();
  take_prepared(ranks, e.plan, e.step);
}

// Ranks that are awaited; at least one.
void JobMachine::take_prepared(const RankSet& ranks, const Digest& plan, Step step) {
  if (plan != plan_digest_) {
    return stop(1, fmt::format("{} prepared another plan under generation {}; are all nodes of one version?",
                               ranks_.name_of(ranks.front()), to_string(generation_)));
  }
  if (!established_ && prepared_.empty()) step_ = step;
  if (step != step_) {
    return stop(1, fmt::format("{} holds state of step {}, the others of step {}; resume from one directory that all "
                               "nodes see",
                               ranks_.name_of(ranks.front()), step.value, step_.value));
  }
  if (ranks.size() == 1)
    prepared_.insert(ranks.front());
  else
    prepared_ = together(prepared_, ranks);
  if (prepared_ != members_ && !KINTSUGI_MUTANT(resumes_early)) return;
  established_ = true;
  if (pausing_) return pause();
  resume();
}

void JobMachine::on(const StepFinal& e) {
  const DecisionRecord& r = e.record;
  if (phase_ == JobPhase::adopting) return learn(r);
  // Steps between may be known to nobody who is here: the node of those days' root left before a supervisor was lost.
  const bool next = r.job == request_.job && r.lineage == request_.lineage && r.step > step_;
  // A record is a fact whenever it comes: while its generation runs, and while the reports of the next one come in.
  const bool open = phase_ == JobPhase::running || phase_ == JobPhase::fencing;
  if (!next || !open || !plan_ || r.generation != plan_->generation) return drop();
  became_final(r);
  if (phase_ == JobPhase::fencing) {
    KINTSUGI_PROBE("job: a record comes while a fence is out");
    return;
  }
  if (incident_) {
    incident_->first_commit = now_;
    close_incident();
  }
  if (r.next_generation) {  // also one that a former supervisor intended: nobody works on
    const RankSet newcomers = difference(ranks_.in(RankPhase::up), members_);
    const RankSet leaving = leaving_members();
    const char* const what = pausing_ ? "the job is paused" : leaving.empty() ? "new ranks are let in" : "ranks leave";
    return begin_generation(Cause{CauseKind::planned, ranks_.names_of(together(newcomers, leaving)),
                                  fmt::format("{} after step {}", what, step_.value)});
  }
  enter(JobPhase::running, request_.deadlines.step);
  refill();
}

void JobMachine::on(const RankFinished& e) {
  if (phase_ == JobPhase::adopting) {
    finished_before_.insert_or_assign(e.rank, e);
    return;
  }
  if (phase_ != JobPhase::running || !is_current(e.rank, e.generation)) return drop();
  if (!final_digest_) final_digest_ = e.digest;
  if (*final_digest_ != e.digest) {
    return stop(1, fmt::format("{} ended with state digest {}, others with {}: a copy of the state is corrupt",
                               ranks_.name_of(e.rank), to_hex(e.digest), to_hex(*final_digest_)));
  }
  finished_.insert(e.rank);
  if (finished_ != members_) return;
  close_incident();
  if (!request_.save) return stop(0, "");
  emit(effect::Note{"saving"});
  emit(effect::Save{});
  enter(JobPhase::saving, request_.deadlines.saving);
}

void JobMachine::on(const RankSaved& e) {
  if (phase_ != JobPhase::saving || !is_current(e.rank, e.generation)) return drop();
  saved_.insert(e.rank);
  if (saved_ == members_) emit(effect::CommitSave{});
}

void JobMachine::on(const SaveCommitted& e) {
  if (phase_ != JobPhase::saving) return drop();
  if (e.outcome) return stop(0, "");
  stop(1, e.outcome.error().message);
}

void JobMachine::on(const Cancel& e) {
  if (phase_ == JobPhase::stopping) return drop();
  stop(e.exit_code, e.why);
}

void JobMachine::on(const DeadlinePassed& e) {
  if (e.number != deadline_number_) return drop();
  switch (phase_) {
    case JobPhase::waiting:
      return stop(3, "not enough slots joined in time: start more nodes with `kintsugi join`, or ask for fewer ranks");
    case JobPhase::adopting: return go_on_with_who_is_here();
    case JobPhase::starting: {
      if (!std::exchange(absent_, {}).empty()) return begin_generation(std::nullopt);  // they do not come any more
      const RankSet silent = ranks_.in(RankPhase::starting);
      if (!silent.empty() && established_ && ranks_.count(RankPhase::up) > 0) return go_on_without(silent);
      if (!silent.empty()) return stop(1, "no hello in time from " + ranks_.names_of(silent));
      return stop(
          1, fmt::format("no free slot came in time for {} more ranks: start more nodes with `kintsugi join`", gap()));
    }
    case JobPhase::fencing:
      return on_overdue(answers_.silent_ranks(), answers_.silent_nodes(), "did not answer the fence in time");
    case JobPhase::preparing: return on_overdue(missing(prepared_), {}, "was not prepared in time");
    case JobPhase::running: {
      const std::string what = steps_left() ? fmt::format("step {}", step_.value + 1) : "the end of every rank's work";
      return begin_generation(Cause{CauseKind::no_progress, what, what + " was not reached in time"});
    }
    case JobPhase::paused: return;  // for as long as it takes
    case JobPhase::saving: return stop(1, "not saved in time: " + ranks_.names_of(missing(saved_)));
    case JobPhase::stopping: {
      RankSet left = ranks_.in(RankPhase::up);
      for (const RankPhase phase : {RankPhase::starting, RankPhase::gone}) {
        left = together(left, ranks_.in(phase));
      }
      phase_ = JobPhase::ended;
      return emit(effect::Ended{exit_code_ == 0 ? 1 : exit_code_,
                                fmt::format("{}{}these processes did not end in time: {}", why_,
                                            why_.empty() ? "" : "; ", ranks_.names_of(left))});
    }
    case JobPhase::ended: break;
  }
  KINTSUGI_UNREACHABLE();
}

// Paused is prepared and not resumed: whoever joins, leaves or is lost meanwhile makes a generation that waits, too.
void JobMachine::on(const PauseJob&) {
  if (pausing_ || phase_ == JobPhase::saving || phase_ == JobPhase::stopping) return drop();
  pausing_ = true;
  refill();
}

void JobMachine::on(const ResumeJob&) {
  if (!pausing_) return drop();
  pausing_ = false;
  if (phase_ == JobPhase::paused) resume();
}

void JobMachine::pause() {
  phase_ = JobPhase::paused;
  ++deadline_number_;  // none runs any more
  emit(effect::Note{fmt::format("paused after step {}; `kintsugi resume` goes on", step_.value)});
  refill();
}

void JobMachine::resume() {
  if (incident_) incident_->resumed = now_;
  if (incident_ && transition_) incident_->lanes_recomputed += transition_->again.size();
  emit(effect::Resume{generation_});
  enter(JobPhase::running, request_.deadlines.step);
  refill();
}

void JobMachine::stop(int exit_code, std::string why) {
  KINTSUGI_ASSERT(phase_ != JobPhase::stopping && phase_ != JobPhase::ended);
  close_incident();
  exit_code_ = exit_code;
  why_ = std::move(why);
  emit(effect::Stop{exit_code_, why_.empty() ? "the job is done" : why_});
  enter(JobPhase::stopping, request_.deadlines.stopping);
  end_if_all_down();
}

void JobMachine::end_if_all_down() {
  if (phase_ != JobPhase::stopping || !ranks_.all_down()) return;
  phase_ = JobPhase::ended;
  emit(effect::Ended{exit_code_, why_});
}

}  // namespace kintsugi
