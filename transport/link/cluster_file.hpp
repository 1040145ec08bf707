// How `kintsugi submit`, `status` and `cancel` find the cluster: STATE_DIRECTORY/cluster.json, written by the
// supervisor.
#pragma once

#include <string>
#include <vector>

#include "transport/link/join_token.hpp"

namespace kintsugi::transport {

struct ClusterFile {
  std::vector<std::string> addresses;  // HOST:PORT, in order of preference
  JoinToken token;
};

Result<void> write_cluster_file(const std::string& state_directory, const ClusterFile& cluster);
// Error{refuse} when there is none: no supervisor has run with this state directory. Error{tell_user}: damaged.
Result<ClusterFile> read_cluster_file(const std::string& state_directory);

}  // namespace kintsugi::transport
