#include "engine/control/takeover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/assert.hpp"

namespace kintsugi {

using namespace takeover_event;  // NOLINT(google-build-using-namespace): the machine's own alphabet
namespace effect = takeover_effect;

Claim judge(const NodeClaim& claim, std::uint64_t cluster_id, const Tenure& self, const std::vector<Tenure>& before) {
  if (claim.cluster_id != cluster_id || claim.served.epoch == 0 || claim.served == self) return Claim::known;
  if (std::find(before.begin(), before.end(), claim.served) != before.end()) return Claim::known;
  return claim.served.epoch >= self.epoch ? Claim::newer : Claim::stranger;
}

TakeoverEffects Takeover::start(Instant now) {
  return {effect::ArmDeadline{now + kTakeoverPatience}};
}

TakeoverEffects Takeover::step(const TakeoverEvent& event, Instant now) {
  KINTSUGI_ASSERT(effects_.empty());
  if (over_) return {};
  std::visit([&](const auto& e) { on(e, now); }, event);
  if (!over_) ask_for_newest();
  if (!over_ && is_complete()) take();
  return std::exchange(effects_, {});
}

void Takeover::on(const Came& e, Instant) {
  if (e.claim.cluster_id == 0) return;  // a newcomer: it has nothing to say yet
  if (!cluster_id_) cluster_id_ = e.claim.cluster_id;
  if (e.claim.cluster_id != *cluster_id_) {
    effects_.push_back(effect::Refuse{e.dialer, "the nodes that came before it are of another cluster"});
    return;
  }
  here_[e.dialer] = e.claim;
}

void Takeover::on(const Went& e, Instant) {
  here_.erase(e.dialer);
  if (asked_ == e.dialer) asked_.reset();
}

void Takeover::on(const CopyRead& e, Instant now) {
  if (asked_ != e.dialer) return;
  asked_.reset();
  here_.at(e.dialer).copy = e.stamp;
  if (!best_) effects_.push_back(effect::ArmDeadline{now + kTakeoverGather});
  if (!best_ || best_->stamp < e.stamp) best_ = Copy{e.dialer, e.stamp, e.nodes, e.tenures};
}

void Takeover::on(const DeadlinePassed&, Instant) {
  if (best_) return take();
  over_ = true;
  effects_.push_back(effect::GiveUp{
      fmt::format("{} came within {} s; nodes must have this machine's address among those they join, and look for a "
                  "supervisor for their job's orphan_limit only",
                  here_.empty() ? "no node of the cluster" : "no node that keeps a copy of the journal",
                  kTakeoverPatience.ns / seconds(1).ns)});
}

void Takeover::ask_for_newest() {
  if (asked_ || here_.empty()) return;
  const auto newest = std::max_element(here_.begin(), here_.end(),
                                       [](const auto& a, const auto& b) { return a.second.copy < b.second.copy; });
  const JournalStamp have = best_ ? best_->stamp : JournalStamp{};
  if (newest->second.copy <= have) return;
  asked_ = newest->first;
  effects_.push_back(effect::AskForCopy{newest->first});
}

std::size_t Takeover::absent() const {
  std::set<Incarnation> missing = best_->nodes;
  for (const auto& [dialer, claim] : here_) missing.erase(claim.node);
  return missing.size();
}

bool Takeover::is_complete() const {
  return best_ && !asked_ && absent() == 0;
}

// Its epoch is above all that any of these nodes has served. Whom they served is before it, though the copy may not say so:
// one that was lost before it had told anybody anything.
void Takeover::take() {
  std::uint32_t epoch = best_->stamp.epoch;
  std::vector<Tenure> also;
  for (const auto& [dialer, claim] : here_) {
    epoch = std::max(epoch, claim.served.epoch);
    const auto knows = [&](const std::vector<Tenure>& list) {
      return std::find(list.begin(), list.end(), claim.served) != list.end();
    };
    if (claim.served.epoch != 0 && !knows(best_->tenures) && !knows(also)) also.push_back(claim.served);
  }
  std::sort(also.begin(), also.end(), [](const Tenure& a, const Tenure& b) { return a.epoch < b.epoch; });
  over_ = true;
  effects_.push_back(
      effect::Take{best_->dialer, (epoch / kTakeoverEpochs + 1) * kTakeoverEpochs, std::move(also), absent()});
}

}  // namespace kintsugi
