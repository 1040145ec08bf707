// What a rank holds beyond a generation: its copies of shards, each in memory of its own that belongs to the node, and
// the newest decision record. Trainers come and go over it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/control/recovery.hpp"
#include "engine/state/record_board.hpp"
#include "engine/state/shard_store.hpp"
#include "kernels/device.hpp"
#include "transport/shm/shared_memory.hpp"

namespace kintsugi {

// One copy's memory, mapped twice: for the host, which writes the header, and for the device, which works on the arrays.
class ShardCopy {
 public:
  ShardCopy(const Shard& shard, transport::shm::Mapping host, std::unique_ptr<kernels::Buffer> device);

  const Shard& shard() const { return slot_.shard(); }
  const ShardSlot& slot() const { return slot_; }
  // (count) f32 each.
  kernels::View master() const { return array(slot_.layout().master); }
  kernels::View moment1() const { return array(slot_.layout().moment1); }
  kernels::View moment2() const { return array(slot_.layout().moment2); }

 private:
  kernels::View array(std::size_t offset_bytes) const;

  transport::shm::Mapping host_;
  std::unique_ptr<kernels::Buffer> device_;
  ShardSlot slot_;
};

// Used by one thread at a time, except for `hold` and `record`, which are thread safe.
class RankState {
 public:
  RankState(kernels::Device& device, RankId self) : device_(device), self_(self) {}

  // The size of a copy's memfd.
  static std::size_t copy_bytes(const Shard& shard) { return ShardStoreLayout(shard).bytes; }
  static constexpr std::size_t board_bytes() { return RecordBoard::bytes(); }

  // Takes a copy in: fresh (zero) memory that a trainer will fill, or a copy that another process left. Replaces an older
  // copy of that shard. No trainer is alive. The descriptor is not kept. Error{tell_user} when it cannot be mapped.
  Result<void> add(const Shard& shard, int memfd);
  // Where records are written from now on, the one held at once. Error{tell_user} likewise.
  Result<void> set_board(int memfd);
  // Lets go of copies that `plan` does not give this rank.
  void keep_only(const Plan& plan);

  // Null: this rank has no copy of it. Valid until the copy is replaced or let go.
  const ShardCopy* find(ShardId shard) const;
  // Of what is STABLE, by shard; without a word of gradients.
  std::vector<CopyReport> copies() const;

  // Knows `record` from now on: on the board before it returns, so that it may be acted on.
  void hold(const DecisionRecord& record);
  std::optional<DecisionRecord> record() const;
  // Those held of steps after `step`, ascending; of a long absence the newest kKeptRecords only.
  std::vector<DecisionRecord> records_after(Step step) const;
  static constexpr std::size_t kKeptRecords = 4096;

 private:
  kernels::Device& device_;
  const RankId self_;
  std::map<ShardId, ShardCopy> copies_;
  mutable std::mutex record_mutex_;
  std::deque<DecisionRecord> records_;  // steps ascending; the last is the newest held
  transport::shm::Mapping board_;       // empty: no board
};

}  // namespace kintsugi
