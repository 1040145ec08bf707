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
    case schemas::Message::STEP_DONE: keep(message.get().getStepDone(), true); break;
    case schemas::Message::STEP_KNOWN: keep(message.get().getStepKnown(), false); break;
    default: break;
  }
}

void Spoken::keep(schemas::StepDone::Reader step, bool as_root) {
  Known known{read_record(step.getRecord()), step.getSeconds(), as_root};
  const Step at = known.record.step;
  if (const auto heard = steps_.find(at); heard != steps_.end() && heard->second.as_root) known.as_root = true;
  steps_.insert_or_assign(at, std::move(known));
  if (steps_.size() > kKeptSteps) steps_.erase(steps_.begin());
}

std::set<Step> Spoken::keep_unheard(const std::vector<DecisionRecord>& records) {
  std::set<Step> unheard;
  for (const DecisionRecord& record : records) {
    if (steps_.try_emplace(record.step, Known{record, 0, true}).second) unheard.insert(record.step);
  }
  while (steps_.size() > kKeptSteps) steps_.erase(steps_.begin());
  return unheard;
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

namespace {

transport::Frame history_frame(JobId job, const std::vector<std::pair<const DecisionRecord*, double>>& steps) {
  return make_frame([&](schemas::Message::Builder m) {
    auto history = m.initStepHistory();
    history.setJob(job.value);
    auto list = history.initSteps(static_cast<unsigned>(steps.size()));
    for (unsigned i = 0; i < list.size(); ++i) {
      list[i].setJob(job.value);
      write_record(*steps[i].first, list[i].initRecord());
      list[i].setSeconds(steps[i].second);
    }
  });
}

}  // namespace

void Spoken::send_steps(JobId job, const Send& send) const {
  std::vector<std::pair<const DecisionRecord*, double>> steps;
  for (const auto& [step, known] : steps_) {
    if (known.as_root) steps.emplace_back(&known.record, known.seconds);
    if (steps.size() < kStepsAFrame) continue;
    send(history_frame(job, steps));
    steps.clear();
  }
  if (!steps.empty()) send(history_frame(job, steps));
}

void Spoken::send_steps_between(JobId job, Step after, Step up_to, const Send& send) const {
  std::vector<std::pair<const DecisionRecord*, double>> steps;
  for (auto at = steps_.upper_bound(after); at != steps_.end() && at->first <= up_to; ++at) {
    if (steps.size() == kStepsAFrame) {
      send(history_frame(job, steps));
      steps.clear();
    }
    steps.emplace_back(&at->second.record, at->second.seconds);
  }
  send(history_frame(job, steps));
}

void Spoken::send_actors(const Send& send) const {
  for (const auto& [rank, message] : actors_) send(message.copy_frame());
}

void Spoken::send_ends(const Send& send) const {
  for (const auto& [rank, message] : ends_) send(message.copy_frame());
}

}  // namespace kintsugi::actors
