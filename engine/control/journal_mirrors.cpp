#include "engine/control/journal_mirrors.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/assert.hpp"

namespace kintsugi {

MirrorEffects JournalMirrors::step(const MirrorEvent& event) {
  KINTSUGI_ASSERT(effects_.empty());
  std::visit([this](const auto& e) { on(e); }, event);
  choose();
  settle();
  return std::exchange(effects_, {});
}

void JournalMirrors::on(const mirror_event::NodeCame& e) {
  KINTSUGI_ASSERT(!mirrors_.contains(e.node));
  candidates_[e.node] = e.rack;
}

void JournalMirrors::on(const mirror_event::NodeWent& e) {
  candidates_.erase(e.node);
  racks_.erase(e.node);
  mirrors_.erase(e.node);
}

void JournalMirrors::on(const mirror_event::Written& e) {
  KINTSUGI_ASSERT(e.number > newest_);
  newest_ = e.number;
  std::erase_if(mirrors_, [&](const auto& entry) {
    const auto& [node, mirror] = entry;
    const bool behind = mirror.phase == Phase::following && newest_ - mirror.sent > kMirrorBehind;
    if (behind) racks_.erase(node);  // not a candidate again until it has joined again
    return behind;
  });
  for (auto& [node, mirror] : mirrors_) send_on(node, mirror);
}

void JournalMirrors::on(const mirror_event::CopyMade& e) {
  const auto at = mirrors_.find(e.node);
  if (at == mirrors_.end() || at->second.phase != Phase::copying) return;  // it went meanwhile
  KINTSUGI_ASSERT(e.number >= newest_);
  newest_ = e.number;
  at->second = {Phase::following, true, e.number, 0};
  effects_.push_back(mirror_effect::SendCopy{e.node});
}

// An answer to what was sent before a mirror was chosen anew says nothing of what it has now.
void JournalMirrors::on(const mirror_event::Kept& e) {
  const auto at = mirrors_.find(e.node);
  if (at == mirrors_.end() || !at->second.in_flight || e.number != at->second.sent) return;
  at->second.in_flight = false;
  at->second.kept = e.number;
  send_on(e.node, at->second);
}

void JournalMirrors::send_on(NodeId node, Mirror& mirror) {
  if (mirror.phase != Phase::following || mirror.in_flight || mirror.sent == newest_) return;
  const std::uint64_t last = std::min(newest_, mirror.sent + kMirrorBatch);
  effects_.push_back(mirror_effect::Send{node, mirror.sent + 1, last});
  mirror.sent = last;
  mirror.in_flight = true;
}

// One of a rack that has none yet first, then the one that is here longest.
void JournalMirrors::choose() {
  while (mirrors_.size() < kJournalMirrors && !candidates_.empty()) {
    const auto elsewhere = std::find_if(candidates_.begin(), candidates_.end(), [&](const auto& candidate) {
      return candidate.second.empty() || std::none_of(racks_.begin(), racks_.end(), [&](const auto& mirror) {
               return mirror.second == candidate.second;
             });
    });
    const auto chosen = elsewhere == candidates_.end() ? candidates_.begin() : elsewhere;
    effects_.push_back(mirror_effect::CopyJournal{chosen->first});
    mirrors_[chosen->first] = {};
    racks_.insert(candidates_.extract(chosen));
  }
}

void JournalMirrors::settle() {
  std::vector<std::uint64_t> kept;
  for (const auto& [node, mirror] : mirrors_) kept.push_back(mirror.kept);
  std::sort(kept.begin(), kept.end(), std::greater<>());
  const std::size_t wanted = std::min(kPromisedMirrors, kept.size());
  const std::uint64_t up_to = wanted == 0 ? newest_ : kept[wanted - 1];
  if (up_to <= safe_) return;
  safe_ = up_to;
  effects_.push_back(mirror_effect::Safe{safe_});
}

std::uint64_t JournalMirrors::needed_from() const {
  std::uint64_t from = newest_ + 1;
  for (const auto& [node, mirror] : mirrors_) {
    if (mirror.phase == Phase::following) from = std::min(from, mirror.sent + 1);
  }
  return from;
}

std::set<NodeId> JournalMirrors::keepers() const {
  std::set<NodeId> all;
  for (const auto& [node, mirror] : mirrors_) {
    if (mirror.kept > 0) all.insert(node);
  }
  return all;
}

std::set<NodeId> JournalMirrors::nodes() const {
  std::set<NodeId> all;
  for (const auto& [node, mirror] : mirrors_) all.insert(node);
  return all;
}

}  // namespace kintsugi
