// What `kintsugi status` shows, as JSON.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "actors/cluster_tree.hpp"
#include "actors/job_supervisor.hpp"
#include "engine/control/membership.hpp"

namespace kintsugi::actors {

// `addresses`: where each member's link comes from. `keepers`: who has a copy of the journal.
std::string status_json(const Membership& members, const std::map<NodeId, std::string>& addresses,
                        const std::set<NodeId>& keepers, const std::vector<JobView>& jobs,
                        const std::vector<ClusterTree::Row>& actors, std::uint32_t epoch, const std::string& version);

}  // namespace kintsugi::actors
