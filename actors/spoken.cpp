#include "actors/spoken.hpp"

#include <algorithm>

namespace kintsugi::actors {

namespace {
constexpr std::size_t kStepsAFrame = 2'000;  // some 400 KiB
}  // namespace

void Spoken::keep(RankId rank, const ControlMessage& message) {
  switch (message.which()) {
    case schemas::Message::RANK_UP: hellos_.insert_or_assign(rank, message); break;
    case schemas::Message::PROCESS_ACTORS: actors_.insert_or_assign(rank, message); break;
    case schemas::Message::FINISHED:
    case schemas::Message::FAILED: ends_.insert_or_assign(rank, message); break;
    case schemas::Message::STEP_DONE:
      steps_.push_back(
          {read_record(message.get().getStepDone().getRecord()), message.get().getStepDone().getSeconds()});
      if (steps_.size() > kKeptSteps) steps_.pop_front();
      break;
    default: break;
  }
}

void Spoken::forget(RankId rank) {
  hellos_.erase(rank);
  actors_.erase(rank);
  ends_.erase(rank);
}

std::uint32_t Spoken::pid(RankId rank) const {
  const auto hello = hellos_.find(rank);
  return hello == hellos_.end() ? 0 : hello->second.get().getRankUp().getPid();
}

std::string Spoken::kernel_variant(RankId rank) const {
  const auto hello = hellos_.find(rank);
  return hello == hellos_.end() ? "" : hello->second.get().getRankUp().getKernelVariant().cStr();
}

void Spoken::send_steps(JobId job, const Send& send) const {
  for (std::size_t first = 0; first < steps_.size(); first += kStepsAFrame) {
    const std::size_t count = std::min(kStepsAFrame, steps_.size() - first);
    send(make_frame([&](schemas::Message::Builder m) {
      auto history = m.initStepHistory();
      history.setJob(job.value);
      auto list = history.initSteps(static_cast<unsigned>(count));
      for (unsigned i = 0; i < count; ++i) {
        const Step& step = steps_[first + i];
        list[i].setJob(job.value);
        write_record(step.record, list[i].initRecord());
        list[i].setSeconds(step.seconds);
      }
    }));
  }
}

void Spoken::send_actors(const Send& send) const {
  for (const auto& [rank, message] : actors_) send(message.copy_frame());
}

void Spoken::send_ends(const Send& send) const {
  for (const auto& [rank, message] : ends_) send(message.copy_frame());
}

}  // namespace kintsugi::actors
