// The tree of all actors of a cluster: the supervisor's own process, and what nodes and ranks have said of theirs. An actor of a
// node or a rank is called by what it is and whose: "node_job@1", "stage@2".
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/actor_tree.hpp"
#include "base/ids.hpp"

namespace kintsugi::actors {

class ClusterTree {
 public:
  struct Row {
    ActorRow actor;
    std::optional<NodeId> node;  // none: in the supervisor's process
    std::uint32_t pid = 0;
    bool is_process = false;  // the root of one
  };

  void update(NodeId node, schemas::ProcessActors::Reader in);
  void forget(NodeId node) { nodes_.erase(node); }

  // `own`: of the supervisor's process. A parent before its children; a node is the supervisor's child, a rank that of its
  // rank supervisor.
  std::vector<Row> rows(const ActorTree& own) const;

 private:
  struct Process {
    std::uint32_t pid = 0;
    std::vector<ActorRow> rows;
  };
  struct Node {
    Process process;
    std::map<RankId, Process> ranks;
  };

  std::map<NodeId, Node> nodes_;
};

// For people: "there is no actor x; there are a, b and 17 more".
std::string no_such_actor(const std::string& name, const std::vector<ClusterTree::Row>& rows);

}  // namespace kintsugi::actors
