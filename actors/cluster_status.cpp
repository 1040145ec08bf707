#include "actors/cluster_status.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

namespace kintsugi::actors {

namespace {

using Json = nlohmann::ordered_json;

// Those from `at` on that are at least so deep, as nested lists; `at` is then past them.
Json children(const std::vector<ClusterTree::Row>& rows, std::size_t& at, std::uint32_t depth) {
  Json list = Json::array();
  while (at < rows.size() && rows[at].actor.depth >= depth) {
    const ClusterTree::Row& row = rows[at++];
    const ActorRow& a = row.actor;
    Json one = {{"actor", a.name},
                {"incarnation", a.incarnation},
                {"restarts", a.restarts},
                {"last_crash", a.last_crash.empty() ? Json(nullptr) : Json(a.last_crash)}};
    if (row.is_process) one["pid"] = row.pid;
    one["children"] = children(rows, at, a.depth + 1);
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace

std::string status_json(const Membership& members, const std::map<NodeId, std::string>& addresses,
                        const std::set<NodeId>& keepers, const std::vector<JobView>& jobs,
                        const std::vector<ClusterTree::Row>& actors, std::uint32_t epoch, const std::string& version) {
  Json out = {{"version", version}, {"epoch", epoch}, {"nodes", Json::array()}, {"jobs", Json::array()}};
  for (const auto& [id, member] : members.members()) {
    const NodeInfo& n = member.info;
    out["nodes"].push_back({{"node", id.value},
                            {"host", n.host},
                            {"address", addresses.at(id)},
                            {"pid", n.pid},
                            {"slots", n.slots},
                            {"cores", n.cores},
                            {"memory_bytes", n.memory_bytes},
                            {"labels", n.labels},
                            {"kernel_variant", n.kernel_variant},
                            {"version", n.version},
                            {"keeps_journal", keepers.contains(id)},
                            {"job", member.lease ? Json(member.lease->value) : Json(nullptr)}});
  }
  for (const JobView& j : jobs) {
    Json ranks = Json::array();
    for (const JobView::Rank& r : j.ranks) {
      ranks.push_back({{"rank", r.rank.value},
                       {"node", r.node.value},
                       {"pid", r.pid},
                       {"primaries", r.primaries},
                       {"replicas", r.replicas}});
    }
    out["jobs"].push_back({{"job", j.job.value},
                           {"name", j.name},
                           {"phase", j.phase},
                           {"generation", to_string(j.generation)},
                           {"incidents", j.incidents},
                           {"step", j.step},
                           {"steps", j.steps},
                           {"loss", std::isfinite(j.loss) ? Json(j.loss) : Json(nullptr)},
                           {"tokens_per_second", j.tokens_per_second},
                           {"ranks", std::move(ranks)},
                           {"plan", j.reason}});
  }
  out["incidents"] = Json::array();
  std::size_t at = 0;
  out["actors"] = children(actors, at, 0);
  // Names and paths may hold any bytes.
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace kintsugi::actors
