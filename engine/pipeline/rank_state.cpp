#include "engine/pipeline/rank_state.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"

namespace kintsugi {

namespace shm = transport::shm;

ShardCopy::ShardCopy(const Shard& shard, shm::Mapping host, std::unique_ptr<kernels::Buffer> device)
    : host_(std::move(host)), device_(std::move(device)), slot_(host_.bytes(), shard) {}

kernels::View ShardCopy::array(std::size_t offset_bytes) const {
  return device_->as(kernels::DType::float32, offset_bytes, shard().count);
}

Result<void> RankState::add(const Shard& shard, int memfd) {
  KINTSUGI_TRY_ASSIGN(shm::Mapping host, shm::Mapping::map(memfd, shm::Access::read_write));
  KINTSUGI_ASSERT_MSG(host.bytes().size() >= copy_bytes(shard), "the node made the memory of this copy too small");
  KINTSUGI_TRY_ASSIGN(auto device, device_.map_shared(memfd, 0, copy_bytes(shard), true));
  copies_.insert_or_assign(shard.id, ShardCopy(shard, std::move(host), std::move(device)));
  return {};
}

Result<void> RankState::set_board(int memfd) {
  KINTSUGI_TRY_ASSIGN(shm::Mapping board, shm::Mapping::map(memfd, shm::Access::read_write));
  const std::lock_guard lock(record_mutex_);
  board_ = std::move(board);
  if (!records_.empty()) RecordBoard(board_.bytes()).write(encode_record(records_.back()));
  return {};
}

void RankState::keep_only(const Plan& plan) {
  std::erase_if(copies_, [&](const auto& copy) { return !plan.shards.at(copy.first.value).has(self_); });
}

const ShardCopy* RankState::find(ShardId shard) const {
  const auto found = copies_.find(shard);
  return found == copies_.end() ? nullptr : &found->second;
}

std::vector<CopyReport> RankState::copies() const {
  std::vector<CopyReport> reports;
  for (const auto& [shard, copy] : copies_) {
    const std::optional<ShardVersion> held = copy.slot().stable();
    if (held) reports.push_back({shard, held->version, held->updates, held->digest});
  }
  return reports;
}

void RankState::hold(const DecisionRecord& record) {
  const std::lock_guard lock(record_mutex_);
  if (!records_.empty() && records_.back() == record) return;
  if (!board_.bytes().empty()) RecordBoard(board_.bytes()).write(encode_record(record));
  records_.push_back(record);
  if (records_.size() > kKeptRecords) records_.pop_front();
}

std::optional<DecisionRecord> RankState::record() const {
  const std::lock_guard lock(record_mutex_);
  return records_.empty() ? std::nullopt : std::optional(records_.back());
}

std::vector<DecisionRecord> RankState::records_after(Step step) const {
  const std::lock_guard lock(record_mutex_);
  const auto first = std::find_if(records_.begin(), records_.end(), [&](const auto& r) { return r.step > step; });
  return {first, records_.end()};
}

}  // namespace kintsugi
