#include "actors/cluster_frames.hpp"

namespace kintsugi::actors {

Arrival read_hello(schemas::NodeHello::Reader in) {
  Arrival arrival{{in.getHostname().cStr(),
                   in.getSlots(),
                   in.getCores(),
                   in.getMemoryBytes(),
                   in.getPid(),
                   {in.getIncarnation()},
                   in.getKernelVariant().cStr(),
                   {},
                   in.getVersion().cStr()},
                  {in.getFormerNode()},
                  {},
                  {{in.getIncarnation()},
                   in.getClusterId(),
                   {in.getServedEpoch(), {in.getServedIncarnation()}},
                   {in.getCopyEpoch(), in.getCopyUpTo()}}};
  for (const auto label : in.getLabels()) arrival.info.labels.emplace_back(label.cStr());
  for (const std::uint32_t job : in.getJobs()) arrival.jobs.insert({job});
  return arrival;
}

Submission read_submission(schemas::Submit::Reader in) {
  return {in.getJobFile().cStr(),       in.getSource().cStr(),          in.getRanks(),   in.getNodes(), in.getThreads(),
          in.getSaveDirectory().cStr(), in.getResumeDirectory().cStr(), in.getUcxOnly(), in.getFollow()};
}

std::optional<JobId> job_of(schemas::Message::Reader m) {
  switch (m.which()) {
    case schemas::Message::RANK_UP: return JobId{m.getRankUp().getJob()};
    case schemas::Message::RANK_REPORT: return JobId{m.getRankReport().getJob()};
    case schemas::Message::NODE_REPORT: return JobId{m.getNodeReport().getJob()};
    case schemas::Message::PREPARED: return JobId{m.getPrepared().getJob()};
    case schemas::Message::STEP_DONE: return JobId{m.getStepDone().getJob()};
    case schemas::Message::FINISHED: return JobId{m.getFinished().getJob()};
    case schemas::Message::SAVED: return JobId{m.getSaved().getJob()};
    case schemas::Message::FAILED: return JobId{m.getFailed().getJob()};
    case schemas::Message::RANK_DOWN: return JobId{m.getRankDown().getJob()};
    case schemas::Message::STEP_HISTORY: return JobId{m.getStepHistory().getJob()};
    case schemas::Message::JOB_STATE: return JobId{m.getJobState().getJob()};
    default: return std::nullopt;
  }
}

transport::Frame refusal(const Error& why) {
  return make_frame([&](schemas::Message::Builder m) {
    auto refused = m.initRefused();
    refused.setAction(static_cast<std::uint8_t>(why.action));
    refused.setMessage(why.message);
  });
}

transport::Frame acceptance(JobId job) {
  return make_frame([&](schemas::Message::Builder m) { m.initAccepted().setJob(job.value); });
}

transport::Frame past_end(const journaled::Ended& end) {
  return make_frame([&](schemas::Message::Builder m) {
    auto out = m.initEnded();
    out.setJob(end.job.value);
    out.setExitCode(end.exit_code);
    out.setMessage(end.message);
  });
}

transport::Frame stop_frame(JobId job, const std::string& why) {
  return make_frame([&](schemas::Message::Builder m) {
    auto stop = m.initStop();
    stop.setJob(job.value);
    stop.setWhy(why);
  });
}

}  // namespace kintsugi::actors
