// Supervisor: the shell around the job's machine.
#include <algorithm>
#include <utility>

#include "base/mutant.hpp"
#include "sim/protocol/supervisor.hpp"

namespace kintsugi::sim::protocol {

namespace {
constexpr Duration kRecordInterval = seconds(1);  // actors/job_journal.hpp
constexpr std::size_t kKeptNotes = 64;
}  // namespace

void Supervisor::start_job(std::optional<Adoption> adoption) {
  JobRequest request{kJob,
                     kLineage,
                     epoch_,
                     context_.job.config,
                     context_.job.shape.ranks,
                     0,
                     false,
                     JobDeadlines::from_budget(context_.job.shape.step_budget)};
  request.nodes = static_cast<std::uint32_t>(context_.job.shape.slots.size());
  machine_.emplace(std::move(request));
  const Instant now = context_.processes.now();
  carry_out(adoption ? machine_->adopt(*adoption, now) : machine_->start(now));
  carry_out(members_.step(member_event::JobWants{kJob}));
}

void Supervisor::feed(const JobEvent& event) {
  if (!machine_) return;
  const bool pauses =
      std::holds_alternative<job_event::PauseJob>(event) || std::holds_alternative<job_event::ResumeJob>(event);
  const std::uint64_t dropped = machine_->dropped();
  JobEffects effects = machine_->step(event, context_.processes.now());
  if (pauses && machine_->dropped() == dropped) write_down(generation_made());
  carry_out(std::move(effects));
}

void Supervisor::on_job_message(NodeId node, const Sent& sent) {
  const auto& what = sent->what;
  if (const auto* m = std::get_if<say::RankUp>(&what)) return feed(job_event::RankUp{m->rank, "simulated"});
  if (const auto* m = std::get_if<say::RankReported>(&what)) {
    for (const DecisionRecord& r : m->records) heard_.try_emplace(r.step, r);
    if (!m->report.sums.begun.empty()) context_.watch.work_is_interrupted();
    RankReport report = m->report;
    report.node = node;
    return feed(job_event::RankReported{m->generation, std::move(report)});
  }
  if (const auto* m = std::get_if<say::NodeReported>(&what)) {
    std::vector<RankReport> left = m->left_behind;
    for (RankReport& r : left) r.node = node;
    return feed(job_event::NodeReported{node, m->generation, std::move(left)});
  }
  if (const auto* m = std::get_if<say::Prepared>(&what)) {
    return feed(job_event::RankPrepared{m->rank, m->generation, m->plan, m->step});
  }
  if (const auto* m = std::get_if<say::StepDone>(&what)) {
    if (m->record.step > reported_) heard_[m->record.step] = m->record;
    return feed(job_event::StepFinal{m->record});
  }
  if (const auto* m = std::get_if<say::StepHistory>(&what)) {
    for (const DecisionRecord& r : m->records) {
      if (r.step > reported_) heard_[r.step] = r;
    }
    return;
  }
  if (const auto* m = std::get_if<say::JobState>(&what)) {
    std::optional<DecisionRecord> newest;
    if (!heard_.empty()) newest = heard_.rbegin()->second;
    return feed(job_event::NodeRestated{node, m->generation, m->in_force, m->living, m->gone, newest});
  }
  if (const auto* m = std::get_if<say::Finished>(&what)) {
    context_.watch.finished(m->digest);
    return feed(job_event::RankFinished{m->rank, m->generation, m->step, m->digest});
  }
  if (const auto* m = std::get_if<say::Failed>(&what)) {
    return feed(job_event::RankFailed{m->rank, m->generation, m->error});
  }
  if (const auto* m = std::get_if<say::RankDown>(&what)) {
    return feed(job_event::RankDown{m->rank, m->why, m->expected});
  }
}

void Supervisor::carry_out(JobEffects effects) {
  for (const JobEffect& effect : effects) std::visit([&](const auto& e) { carry_out(e); }, effect);
}

void Supervisor::carry_out(const job_effect::Note& e) {
  notes_.push_back(e.text);
  if (notes_.size() > kKeptNotes) notes_.pop_front();
}

void Supervisor::carry_out(const job_effect::StartRanks& e) {
  std::map<NodeId, std::vector<RankId>> by_node;
  for (const PlanRank& r : e.ranks) by_node[r.node].push_back(r.rank);
  promise(generation_made(), [this, by_node] {
    for (const auto& [node, ranks] : by_node) to_node(node, message(say::StartRanks{ranks}));
  });
}

void Supervisor::carry_out(const job_effect::Fence& e) {
  context_.watch.fenced(e.generation);
  if (KINTSUGI_MUTANT(tells_before_it_is_durable)) {
    context_.watch.promised(disk_.promised(), e.generation);
    return to_nodes(message(say::Fence{e.generation, reported_}));
  }
  promise(generation_made(), [this, generation = e.generation] {
    context_.watch.promised(disk_.promised(), generation);
    to_nodes(message(say::Fence{generation, reported_}));
  });
}

void Supervisor::carry_out(const job_effect::Prepare& e) {
  context_.watch.planned(e.plan.generation, e.plan.digest());
  if (e.transition && e.transition->step < context_.watch.newest_final()) {
    context_.watch.went_back(context_.watch.newest_final(), e.transition->step);
  }
  if (!e.transition && context_.watch.newest_final() > Step{}) {
    context_.watch.went_back(context_.watch.newest_final(), {});
  }
  to_nodes(message(say::Prepare{e.plan, e.transition}));
}

void Supervisor::carry_out(const job_effect::Resume& e) {
  context_.generation_resumes(*machine_->plan());
  to_nodes(message(say::Resume{e.generation}));
}

// Steps whose root's words did not get here in time come in what members say at a fence, or nodes after a restart.
void Supervisor::carry_out(const job_effect::Report& e) {
  context_.watch.final_is(e.record.step);
  heard_.erase(heard_.begin(), heard_.upper_bound(e.record.step));
  reported_ = e.record.step;
  const Instant now = context_.processes.now();
  const bool last = e.record.step.value == static_cast<std::uint64_t>(context_.job.config.steps);
  if (!last && recorded_ && now < *recorded_ + kRecordInterval) return;
  recorded_ = now;
  write_down(journaled::RecordSeen{kJob, e.record.step, encode_record(e.record)});
}

void Supervisor::carry_out(const job_effect::Stop& e) {
  if (e.exit_code != 0 && e.why.find("are lost") != std::string::npos) context_.watch.job_lost_state(e.why);
  promise(journaled::Ended{kJob, static_cast<std::uint8_t>(e.exit_code), e.why},
          [this, why = e.why] { to_nodes(message(say::Stop{why})); });
}

void Supervisor::carry_out(const job_effect::ArmDeadline& e) {
  context_.processes.post(pid_, std::max(e.at, context_.processes.now()), kTimer, e.number,
                          [this, number = e.number] { feed(job_event::DeadlinePassed{number}); });
}

void Supervisor::carry_out(const job_effect::Ended& e) {
  in_turn([this, e] {
    outcome_ = {e.exit_code, e.message};
    carry_out(members_.step(member_event::JobEnded{kJob}));
    offered_.clear();
  });
}

}  // namespace kintsugi::sim::protocol
