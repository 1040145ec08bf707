// A rank process: one event-driven actor that speaks with the node, one detached actor that computes
// (actors/stage.hpp).
#pragma once

#include "actors/stage.hpp"

namespace kintsugi::actors {

// `kintsugi rank`: started by a node only. Returns the exit code.
struct RankProcessOptions {
  RankIdentity identity;
  int socket = -1;  // the Unix link to the node
  Logger logger;
};
int run_rank_process(const RankProcessOptions& options);

}  // namespace kintsugi::actors
