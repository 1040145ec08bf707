#include "actors/cluster_tree.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "actors/injection.hpp"

namespace kintsugi::actors {

namespace {

constexpr char kRankSupervisor[] = "rank_supervisor";

std::string of(const std::string& name, std::uint32_t whose) {
  return name.find('@') == std::string::npos ? fmt::format("{}@{}", name, whose) : name;
}

}  // namespace

void ClusterTree::update(NodeId node, schemas::ProcessActors::Reader in) {
  Node& at = nodes_[node];
  const Process process{in.getPid(), read_actors(in)};
  if (in.getOfRank()) {
    at.ranks[{in.getRank()}] = process;
    return;
  }
  at.process = process;
  std::set<RankId> there;
  for (const ActorRow& row : process.rows) {
    const ActorName name = parse_actor(row.name);
    if (name.kind == kRankSupervisor && name.number) there.insert({*name.number});
  }
  std::erase_if(at.ranks, [&](const auto& rank) { return !there.contains(rank.first); });
}

std::vector<ClusterTree::Row> ClusterTree::rows(const ActorTree& own) const {
  std::vector<Row> out;
  const auto add = [&](ActorRow row, std::optional<NodeId> node, std::uint32_t pid, std::uint32_t below) {
    const bool is_process = row.depth == 0;
    row.depth += below;
    out.push_back({std::move(row), node, pid, is_process});
  };
  for (const ActorRow& row : own.rows()) add(row, std::nullopt, static_cast<std::uint32_t>(::getpid()), 0);
  for (const auto& [id, node] : nodes_) {
    for (ActorRow row : node.process.rows) {
      const ActorName name = parse_actor(row.name);
      const std::uint32_t depth = row.depth + 1;
      row.name = of(row.name, id.value);
      add(row, id, node.process.pid, 1);
      if (name.kind != kRankSupervisor || !name.number) continue;
      const auto rank = node.ranks.find({*name.number});
      if (rank == node.ranks.end()) continue;
      for (ActorRow inner : rank->second.rows) {
        inner.name = of(inner.name, *name.number);
        add(inner, id, rank->second.pid, depth + 1);
      }
    }
  }
  return out;
}

std::string no_such_actor(const std::string& name, const std::vector<ClusterTree::Row>& rows) {
  constexpr std::size_t kNamed = 40;
  std::string there;
  for (std::size_t i = 0; i < std::min(kNamed, rows.size()); ++i) {
    there += (i == 0 ? "" : ", ") + rows[i].actor.name;
  }
  if (rows.size() > kNamed) there += fmt::format(" and {} more, which `kintsugi status` shows", rows.size() - kNamed);
  return fmt::format("there is no actor '{}'; there are {}", name, there);
}

}  // namespace kintsugi::actors
