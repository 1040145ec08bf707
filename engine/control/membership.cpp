#include "engine/control/membership.hpp"

#include "base/assert.hpp"

namespace kintsugi {

MemberEffects Membership::step(const MemberEvent& event) {
  return std::visit([&](const auto& e) { return on(e); }, event);
}

const Member* Membership::find(NodeId node) const {
  const auto at = members_.find(node);
  return at == members_.end() ? nullptr : &at->second;
}

MemberEffects Membership::on(const member_event::Joined& event) {
  const NodeId node = event.former ? *event.former : NodeId{next_node_++};
  const bool is_new = members_.emplace(node, Member{event.info, {}}).second;
  KINTSUGI_ASSERT(is_new);
  MemberEffects effects{member_effect::Welcome{node}};
  lease_free_nodes(effects);
  return effects;
}

MemberEffects Membership::on(const member_event::Left& event) {
  const auto at = members_.find(event.node);
  if (at == members_.end()) return {};
  const std::optional<JobId> lease = at->second.lease;
  members_.erase(at);
  if (!lease) return {};
  return {member_effect::Lost{event.node, *lease, event.why}};
}

MemberEffects Membership::on(const member_event::JobWants& event) {
  wanting_.insert(event.job);
  MemberEffects effects;
  lease_free_nodes(effects);
  return effects;
}

MemberEffects Membership::on(const member_event::JobEnded& event) {
  wanting_.erase(event.job);
  for (auto& [node, member] : members_) {
    if (member.lease == event.job) member.lease.reset();
  }
  MemberEffects effects;
  lease_free_nodes(effects);
  return effects;
}

void Membership::lease_free_nodes(MemberEffects& effects) {
  if (wanting_.empty()) return;
  const JobId oldest = *wanting_.begin();
  for (auto& [node, member] : members_) {
    if (member.lease) continue;
    member.lease = oldest;
    effects.push_back(member_effect::Offer{node, oldest});
  }
}

std::string label(const NodeInfo& info, std::string_view name) {
  for (const std::string& l : info.labels) {
    if (l.size() > name.size() && l.starts_with(name) && l[name.size()] == '=') return l.substr(name.size() + 1);
  }
  return {};
}

std::string member_name(NodeId node, const NodeInfo& info) {
  return to_string(node) + " (" + info.host + ")";
}

}  // namespace kintsugi
