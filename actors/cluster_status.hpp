// What `kintsugi status` shows, as JSON.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/job_supervisor.hpp"

namespace kintsugi::actors {

struct NodeEntry {
  std::shared_ptr<transport::Link> link;
  std::string hostname;
  std::uint32_t slots = 0, cores = 0;
  std::uint64_t memory_bytes = 0;
  std::uint32_t pid = 0;
  std::string kernel_variant, version;
  std::vector<std::string> labels;  // "rack=r1"
  std::optional<JobId> lease;       // the job that its slots belong to
};

std::string status_json(const std::map<NodeId, NodeEntry>& nodes, const std::vector<JobView>& jobs, std::uint32_t epoch,
                        const std::string& version);

}  // namespace kintsugi::actors
