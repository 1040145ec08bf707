// Memory that a node owns and that outlives its ranks' processes: copies of shards and boards with records.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/control/recovery.hpp"
#include "sim/protocol/marks.hpp"

namespace kintsugi::sim::protocol {

// One copy of one shard: STABLE(version), or APPLYING, which is no copy. Fresh memory is APPLYING.
struct CopyMemory {
  ShardId shard;
  bool applying = true;
  Step version;
  std::uint64_t updates = 0;
  Mark state = 0;
  Digest digest;  // as the header says

  std::optional<CopyReport> report() const {
    if (applying) return std::nullopt;
    return CopyReport{shard, version, updates, digest, false};
  }
};

struct Board {
  std::optional<DecisionRecord> newest;
};

// As actors/job_memory.cpp.
class JobMemory {
 public:
  std::shared_ptr<Board> board(RankId rank);
  void create(RankId rank, ShardId shard);
  Result<void> take_over(RankId rank, ShardId shard, RankId from);
  std::shared_ptr<CopyMemory> copy(RankId rank, ShardId shard) const { return copies_.at({rank, shard}); }
  std::vector<RankReport> left_behind(const std::function<bool(RankId)>& is_alive) const;
  void keep_only(const Plan& plan);
  void clear();
  std::size_t size() const { return copies_.size() + boards_.size(); }

 private:
  std::map<std::pair<RankId, ShardId>, std::shared_ptr<CopyMemory>> copies_;
  std::map<RankId, std::shared_ptr<Board>> boards_;
};

}  // namespace kintsugi::sim::protocol
