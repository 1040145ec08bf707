#include "sim/protocol/memory.hpp"

namespace kintsugi::sim::protocol {

std::shared_ptr<Board> JobMemory::board(RankId rank) {
  std::shared_ptr<Board>& board = boards_[rank];
  if (!board) board = std::make_shared<Board>();
  return board;
}

void JobMemory::create(RankId rank, ShardId shard) {
  copies_[{rank, shard}] = std::make_shared<CopyMemory>(CopyMemory{.shard = shard});
}

Result<void> JobMemory::take_over(RankId rank, ShardId shard, RankId from) {
  const auto left = copies_.find({from, shard});
  if (left == copies_.end()) return Error{ErrorAction::end_generation, "a rank left no such copy on this node"};
  std::shared_ptr<CopyMemory> copy = std::move(left->second);
  copies_.erase(left);
  copies_[{rank, shard}] = std::move(copy);
  return {};
}

std::vector<RankReport> JobMemory::left_behind(const std::function<bool(RankId)>& is_alive) const {
  std::map<RankId, RankReport> reports;
  const auto report = [&](RankId rank) -> RankReport& {
    return reports.try_emplace(rank, RankReport{rank, {}, false, {}, std::nullopt}).first->second;
  };
  for (const auto& [rank, board] : boards_) {
    if (!is_alive(rank)) report(rank).record = board->newest;
  }
  for (const auto& [key, copy] : copies_) {
    if (is_alive(key.first)) continue;
    if (const auto stable = copy->report()) report(key.first).copies.push_back(*stable);
  }
  std::vector<RankReport> all;
  for (auto& [rank, one] : reports) all.push_back(std::move(one));
  return all;
}

void JobMemory::keep_only(const Plan& plan) {
  std::erase_if(copies_,
                [&](const auto& entry) { return !plan.shards.at(entry.first.second.value).has(entry.first.first); });
  std::erase_if(boards_, [&](const auto& entry) { return !plan.has(entry.first); });
}

void JobMemory::clear() {
  copies_.clear();
  boards_.clear();
}

}  // namespace kintsugi::sim::protocol
