// Who is in the cluster and to whom its slots are leased, as a pure machine. A node's number is given once and never again:
// whoever returns is a new member, unless it is the supervisor that was away. All slots of a node are leased to one job at a
// time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.hpp"

namespace kintsugi {

struct NodeInfo {
  std::string host;
  std::uint32_t slots = 0;
  std::uint32_t cores = 0;
  std::uint64_t memory_bytes = 0;
  std::uint32_t pid = 0;
  Incarnation incarnation;
  std::string kernel_variant;
  std::vector<std::string> labels;
  std::string version;
};

struct Member {
  NodeInfo info;
  std::optional<JobId> lease;
};

namespace member_event {
struct Joined {
  NodeInfo info;
  std::optional<NodeId> former;  // the number that a former supervisor gave to this very process; not a member's
};
struct Left {
  NodeId node;
  std::string why;
};
struct JobWants {  // from now on the job is offered every free node
  JobId job;
};
struct JobEnded {
  JobId job;
};
}  // namespace member_event

using MemberEvent =
    std::variant<member_event::Joined, member_event::Left, member_event::JobWants, member_event::JobEnded>;

namespace member_effect {
struct Welcome {
  NodeId node;
};
struct Offer {  // the node's slots are the job's now
  NodeId node;
  JobId job;
};
struct Lost {  // a node that was leased to the job is gone
  NodeId node;
  JobId job;
  std::string why;
};
}  // namespace member_effect

using MemberEffect = std::variant<member_effect::Welcome, member_effect::Offer, member_effect::Lost>;
using MemberEffects = std::vector<MemberEffect>;

class Membership {
 public:
  // `next_node`: the first number that was never given.
  explicit Membership(NodeId next_node = {1}) : next_node_(next_node.value) {}

  // An event about a node or job that is unknown by now changes nothing.
  MemberEffects step(const MemberEvent& event);

  const std::map<NodeId, Member>& members() const { return members_; }
  const Member* find(NodeId node) const;

 private:
  MemberEffects on(const member_event::Joined& event);
  MemberEffects on(const member_event::Left& event);
  MemberEffects on(const member_event::JobWants& event);
  MemberEffects on(const member_event::JobEnded& event);
  // Gives free nodes to the jobs that want them, oldest job first.
  void lease_free_nodes(MemberEffects& effects);

  std::map<NodeId, Member> members_;
  std::set<JobId> wanting_;
  std::uint32_t next_node_;
};

// The value of a label "name=value"; empty: it has none of that name.
std::string label(const NodeInfo& info, std::string_view name);
// "2 (host)": what messages call a node.
std::string member_name(NodeId node, const NodeInfo& info);

}  // namespace kintsugi
