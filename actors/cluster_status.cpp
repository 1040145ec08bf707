#include "actors/cluster_status.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

namespace kintsugi::actors {

std::string status_json(const Membership& members, const std::map<NodeId, std::string>& addresses,
                        const std::set<NodeId>& keepers, const std::vector<JobView>& jobs, std::uint32_t epoch,
                        const std::string& version) {
  using Json = nlohmann::ordered_json;
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
  // Names and paths may hold any bytes.
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace kintsugi::actors
