#include "actors/job_frames.hpp"

#include <algorithm>
#include <utility>

#include "engine/control/recovery_codec.hpp"
#include "engine/plan/cost.hpp"
#include "engine/plan/plan_codec.hpp"

namespace kintsugi::actors {

// The death of a process is seen at once and its silence within two seconds, so this one is for a step that makes no
// progress though all live. No machine is slower than 1 GFLOP/s, and a minute is for whatever else it does.
Duration step_budget(const JobConfig& job) {
  constexpr double kSlowestFlops = 1e9, kMostSeconds = 24 * 3600;
  const double seconds_needed = step_flops(ModelLayout(job.model), job.batch) / kSlowestFlops;
  return seconds(60) + seconds(static_cast<std::int64_t>(std::min(seconds_needed, kMostSeconds)));
}

JobRequest job_request(JobId job, std::uint32_t epoch, const AdmittedJob& a) {
  return {job,
          a.lineage,
          epoch,
          a.config,
          a.submission.ranks,
          a.submission.nodes,
          !a.submission.save_directory.empty(),
          JobDeadlines::from_budget(step_budget(a.config))};
}

JobFrames::Fill JobFrames::start_ranks(std::vector<RankId> ranks, std::uint32_t threads) const {
  return [this, ranks = std::move(ranks), threads](schemas::Message::Builder m) {
    auto start = m.initStartRanks();
    start.setJob(id_.value);
    auto list = start.initRanks(static_cast<unsigned>(ranks.size()));
    for (unsigned i = 0; i < list.size(); ++i) list.set(i, ranks[i].value);
    start.setThreads(threads);
    start.setUcxOnly(job_.submission.ucx_only);
  };
}

JobFrames::Fill JobFrames::fence(const job_effect::Fence& e, Step known) const {
  return [this, e, known](schemas::Message::Builder m) {
    auto fence = m.initFence();
    fence.setJob(id_.value);
    fence.setLineage(job_.lineage.value);
    write_generation(e.generation, fence.initGeneration());
    fence.setWhy(e.why);
    fence.setKnownStep(known.value);
  };
}

JobFrames::Fill JobFrames::steps_wanted(Step after, Step up_to) const {
  return [this, after, up_to](schemas::Message::Builder m) {
    auto wanted = m.initStepsWanted();
    wanted.setJob(id_.value);
    wanted.setAfter(after.value);
    wanted.setUpTo(up_to.value);
  };
}

JobFrames::Fill JobFrames::intend(Generation generation) const {
  return [this, generation](schemas::Message::Builder m) {
    auto intend = m.initIntend();
    intend.setJob(id_.value);
    write_generation(generation, intend.initGeneration());
  };
}

JobFrames::Fill JobFrames::restate() const {
  return [this](schemas::Message::Builder m) { m.initRestate().setJob(id_.value); };
}

JobFrames::Fill JobFrames::kill_rank(const job_effect::KillRank& e) const {
  return [this, e](schemas::Message::Builder m) {
    auto kill = m.initKillRank();
    kill.setJob(id_.value);
    kill.setRank(e.rank.value);
    kill.setWhy(e.why);
  };
}

JobFrames::Fill JobFrames::prepare(const job_effect::Prepare& e, std::vector<UcxAddress> addresses) const {
  return [this, e, addresses = std::move(addresses)](schemas::Message::Builder m) {
    auto prepare = m.initPrepare();
    prepare.setJob(id_.value);
    prepare.setJobFile(to_yaml(job_.config));
    write_plan(e.plan, prepare.initPlan());
    auto list = prepare.initUcxAddresses(static_cast<unsigned>(addresses.size()));
    for (unsigned i = 0; i < list.size(); ++i) list.set(i, {addresses[i].data(), addresses[i].size()});
    if (e.transition) write_transition(*e.transition, prepare.initTransition());
    prepare.setSteps(last_step());
    prepare.setResumeDirectory(job_.submission.resume_directory);
    prepare.setStepBudgetMs(static_cast<std::uint64_t>(step_budget(job_.config).ms()));
    prepare.setUcxOnly(job_.submission.ucx_only);
  };
}

JobFrames::Fill JobFrames::resume(Generation generation) const {
  return [this, generation](schemas::Message::Builder m) {
    auto resume = m.initResume();
    resume.setJob(id_.value);
    write_generation(generation, resume.initGeneration());
  };
}

JobFrames::Fill JobFrames::save(std::string staging) const {
  return [this, staging = std::move(staging)](schemas::Message::Builder m) {
    auto save = m.initSave();
    save.setJob(id_.value);
    save.setDirectory(staging);
  };
}

JobFrames::Fill JobFrames::stop(std::string why) const {
  return [this, why = std::move(why)](schemas::Message::Builder m) {
    auto stop = m.initStop();
    stop.setJob(id_.value);
    stop.setWhy(why);
  };
}

JobFrames::Fill JobFrames::note(std::string text) const {
  return [this, text = std::move(text)](schemas::Message::Builder m) {
    auto p = m.initProgress();
    p.setJob(id_.value);
    p.setText(text);
    p.setSteps(last_step());
  };
}

JobFrames::Fill JobFrames::step(const DecisionRecord& record, double tokens_per_second, std::uint32_t ranks) const {
  return [this, record, tokens_per_second, ranks](schemas::Message::Builder m) {
    auto p = m.initProgress();
    p.setJob(id_.value);
    p.setStep(record.step.value);
    p.setSteps(last_step());
    p.setLoss(record.loss);
    p.setGradientNorm(record.gradient_norm);
    p.setLearningRate(record.learning_rate);
    p.setTokensPerSecond(tokens_per_second);
    p.setRanks(ranks);
  };
}

JobFrames::Fill JobFrames::ended(const job_effect::Ended& e, std::string report) const {
  return [this, e, report = std::move(report)](schemas::Message::Builder m) {
    auto ended = m.initEnded();
    ended.setJob(id_.value);
    ended.setExitCode(static_cast<std::uint8_t>(e.exit_code));
    ended.setMessage(e.message);
    ended.setReport(report);
  };
}

Result<job_event::NodeRestated> read_job_state(schemas::JobState::Reader in, NodeId node,
                                               std::optional<DecisionRecord> record) {
  job_event::NodeRestated restated{node, read_generation(in.getGeneration()), {}, {}, {}, std::move(record)};
  if (in.hasPlan()) {
    KINTSUGI_TRY_ASSIGN(restated.in_force, read_plan(in.getPlan()));
  }
  for (const auto r : in.getLiving()) restated.living.push_back({{r.getRank()}, r.getKernelVariant().cStr()});
  for (const std::uint32_t rank : in.getGone()) restated.gone.push_back({rank});
  return restated;
}

}  // namespace kintsugi::actors
