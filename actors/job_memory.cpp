#include "actors/job_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include "engine/state/record_board.hpp"
#include "engine/state/shard_store.hpp"
#include "transport/shm/shared_memory.hpp"

namespace kintsugi::actors {

namespace shm = transport::shm;

Result<FileDescriptor> duplicate(const FileDescriptor& fd) {
  FileDescriptor copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) {
    return Error{ErrorAction::tell_user, errno_message("cannot hand out memory", "a descriptor; raise `ulimit -n`")};
  }
  return copy;
}

Result<const FileDescriptor*> JobMemory::board(RankId rank) {
  FileDescriptor& board = boards_[rank];
  if (!board.valid()) {
    KINTSUGI_TRY_ASSIGN(board, shm::create_shared_memory("kintsugi-board", RecordBoard::bytes()));
  }
  return &board;
}

Result<void> JobMemory::create(RankId rank, ShardId shard, std::size_t bytes) {
  KINTSUGI_TRY_ASSIGN(FileDescriptor copy, shm::create_shared_memory("kintsugi-shard", bytes));
  copies_[{rank, shard}] = std::move(copy);
  return {};
}

Result<void> JobMemory::take_over(RankId rank, ShardId shard, RankId from) {
  const auto left = copies_.find({from, shard});
  if (left == copies_.end()) {
    return Error{ErrorAction::end_generation,
                 fmt::format("rank {} left no copy of shard {} on this node", from.value, shard.value)};
  }
  FileDescriptor copy = std::move(left->second);
  copies_.erase(left);
  copies_[{rank, shard}] = std::move(copy);
  return {};
}

Result<void> JobMemory::corrupt(RankId rank, ShardId shard) {
  const auto at = copies_.find({rank, shard});
  if (at == copies_.end()) return {};
  KINTSUGI_TRY_ASSIGN(const auto mapping, shm::Mapping::map(at->second.get(), shm::Access::read_write));
  mapping.bytes()[mapping.bytes().size() / 2] ^= std::byte{1};
  return {};
}

namespace {

std::vector<DecisionRecord> records_on(const FileDescriptor& board) {
  std::vector<DecisionRecord> records;
  const auto mapping = shm::Mapping::map(board.get(), shm::Access::read_write);
  if (!mapping) return records;
  for (const std::vector<std::byte>& bytes : RecordBoard(mapping->bytes()).all()) {
    if (const Result<DecisionRecord> record = decode_record(bytes)) records.push_back(*record);
  }
  return records;
}

std::optional<DecisionRecord> record_on(const FileDescriptor& board) {
  const std::vector<DecisionRecord> records = records_on(board);
  return records.empty() ? std::nullopt : std::optional(records.back());
}

std::optional<CopyReport> report_of(ShardId shard, const FileDescriptor& copy) {
  const auto mapping = shm::Mapping::map(copy.get(), shm::Access::read);
  if (!mapping) return std::nullopt;
  const std::optional<ShardVersion> stable = stable_version(mapping->bytes(), shard);
  if (!stable) return std::nullopt;
  return CopyReport{shard, stable->version, stable->updates, stable->digest, false};
}

}  // namespace

std::vector<DecisionRecord> JobMemory::records_of(RankId rank) const {
  const auto board = boards_.find(rank);
  return board == boards_.end() ? std::vector<DecisionRecord>{} : records_on(board->second);
}

std::vector<RankReport> JobMemory::left_behind(const std::function<bool(RankId)>& is_alive) const {
  std::map<RankId, RankReport> reports;
  const auto report = [&](RankId rank) -> RankReport& {
    return reports.try_emplace(rank, RankReport{rank, {}, false, {}, std::nullopt}).first->second;
  };
  for (const auto& [rank, fd] : boards_) {
    if (!is_alive(rank)) report(rank).record = record_on(fd);
  }
  for (const auto& [key, fd] : copies_) {
    const auto& [rank, shard] = key;
    if (is_alive(rank)) continue;
    if (const auto copy = report_of(shard, fd)) report(rank).copies.push_back(*copy);
  }
  std::vector<RankReport> all;
  for (auto& [rank, one] : reports) all.push_back(std::move(one));
  return all;
}

void JobMemory::keep_only(const Plan& plan) {
  std::erase_if(copies_, [&](const auto& entry) {
    const auto& [rank, shard] = entry.first;
    return !plan.shards.at(shard.value).has(rank);
  });
  std::erase_if(boards_, [&](const auto& entry) { return !plan.has(entry.first); });
}

}  // namespace kintsugi::actors
