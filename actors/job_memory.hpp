// Memory of one job on one node that outlives rank processes: copies of shards and the boards with the newest decision
// records. Each is a memfd of the node process; a rank maps it while it lives. Owned by one actor.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "base/file.hpp"
#include "engine/control/recovery.hpp"

namespace kintsugi::actors {

class JobMemory {
 public:
  // The rank's board, made when first asked for. Error{tell_user}: memory or descriptors are short.
  Result<const FileDescriptor*> board(RankId rank);
  // Zero-filled memory for a copy, in place of an older one of that rank. Likewise.
  Result<void> create(RankId rank, ShardId shard, std::size_t bytes);
  // `from` is gone and left a copy, which is the rank's from now on. Error{end_generation}: it left none.
  Result<void> take_over(RankId rank, ShardId shard, RankId from);
  // The rank has one (asserted).
  const FileDescriptor& copy(RankId rank, ShardId shard) const { return copies_.at({rank, shard}); }

  // An injected fault: flips a bit in the middle of the rank's copy. Nothing happens where there is none.
  Result<void> corrupt(RankId rank, ShardId shard);

  // What is on the rank's board: its newest records, by step.
  std::vector<DecisionRecord> records_of(RankId rank) const;
  // What ranks that are not alive left here: their STABLE copies and newest records.
  std::vector<RankReport> left_behind(const std::function<bool(RankId)>& is_alive) const;
  // Frees copies that no holder of the plan has, and boards of ranks that are no members.
  void keep_only(const Plan& plan);

 private:
  std::map<std::pair<RankId, ShardId>, FileDescriptor> copies_;
  std::map<RankId, FileDescriptor> boards_;
};

// Another descriptor of the same file. Error{tell_user}: the process has none left.
Result<FileDescriptor> duplicate(const FileDescriptor& fd);

}  // namespace kintsugi::actors
