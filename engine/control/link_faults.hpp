// Pairs of nodes that cannot reach each other though both reach the supervisor (DESIGN 7, opposed accusations). Who accuses
// a rank that dies was right about it, and nothing is wrong with the path. An accusation of a rank that lives is a fault of
// the pair, whoever of the two speaks: the next generation tries once more, over new connections. Where that ends in an
// accusation between the two nodes again, they are kept apart for a time: one of them works no cells and holds no shards.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>
#include "base/flat_set.hpp"

#include "base/clock.hpp"
#include "base/ids.hpp"

namespace kintsugi {

// Doubles each time that the two cannot reach each other again soon after, up to the most.
constexpr Duration kFirstApart = seconds(60);
constexpr Duration kMostApart = seconds(960);

class LinkFaults {
 public:
  struct Accusation {
    NodeId by;
    NodeId accused_node;
    RankId accused;
    Generation generation;
  };
  // True: from now on the two nodes are kept apart.
  bool accuse(const Accusation& accusation, Instant now);
  // It is down: accusations of it were right.
  void down(RankId rank);
  void lost(NodeId node);
  // A step became final: whoever was accused in its generation is reached.
  void worked() { accused_.clear(); }
  // Better a link that may work than a job that cannot.
  void forget() { apart_.clear(); }

  struct Loss {                // of leaving a node out
    bool loses_state = false;  // nobody else holds some shard
    std::uint64_t cells = 0;   // that others must work
    auto operator<=>(const Loss&) const = default;
  };
  // Of `nodes`, those to leave out so that no two of the others are kept apart: first whoever is in most such pairs, then
  // whose loss is least, then the lowest number.
  NodeSet left_out(const NodeSet& nodes, const std::function<Loss(NodeId)>& loss, Instant now) const;

  bool operator==(const LinkFaults&) const = default;

 private:
  using Pair = std::pair<NodeId, NodeId>;  // the lower number first
  struct Apart {
    Instant until;
    Duration time;
    bool operator==(const Apart&) const = default;
  };
  std::map<Pair, std::map<RankId, Generation>> accused_;  // since the last final step: the newest of each rank
  std::map<Pair, Apart> apart_;                           // also past ones, for the next time
};

}  // namespace kintsugi
