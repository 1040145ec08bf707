#include "engine/control/step_commit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <tuple>
#include <utility>

#include "base/lane_tree.hpp"
#include "base/mutant.hpp"
#include "engine/state/learning_rate.hpp"
#include "engine/state/state_digest.hpp"
#include "schemas/codec.hpp"
#include "schemas/vote.capnp.h"

namespace kintsugi {

std::vector<std::byte> encode_contribution(const Contribution& contribution) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schemas::Contribution>();
  auto shards = root.initShards(static_cast<unsigned>(contribution.shards.size()));
  for (unsigned i = 0; i < shards.size(); ++i) {
    const ShardVote& vote = contribution.shards[i];
    shards[i].setShard(vote.shard.value);
    shards[i].setSquaredNormBits(std::bit_cast<std::uint64_t>(vote.squared_norm));
    shards[i].initPreviousDigest().setHigh(vote.previous_digest.high);
    shards[i].getPreviousDigest().setLow(vote.previous_digest.low);
  }
  auto replicas = root.initReplicas(static_cast<unsigned>(contribution.replicas.size()));
  for (unsigned i = 0; i < replicas.size(); ++i) {
    const ReplicaVote& vote = contribution.replicas[i];
    replicas[i].setShard(vote.shard.value);
    replicas[i].setHolder(vote.holder.value);
    replicas[i].initPreviousDigest().setHigh(vote.previous_digest.high);
    replicas[i].getPreviousDigest().setLow(vote.previous_digest.low);
  }
  if (contribution.ready_for) {
    root.initReadyFor().setEpoch(contribution.ready_for->epoch);
    root.getReadyFor().setCounter(contribution.ready_for->counter);
  }
  auto lanes = root.initLanes(static_cast<unsigned>(contribution.lanes.size()));
  for (unsigned i = 0; i < lanes.size(); ++i) {
    lanes[i].setLane(contribution.lanes[i].lane.value);
    lanes[i].setLossBits(std::bit_cast<std::uint64_t>(contribution.lanes[i].loss));
  }
  return encode_message(message);
}

Result<Contribution> decode_contribution(std::span<const std::byte> bytes) {
  return read_message<schemas::Contribution>(bytes, "a contribution to the vote", [](auto in) -> Result<Contribution> {
    Contribution out;
    for (const auto vote : in.getShards()) {
      out.shards.push_back({{vote.getShard()},
                            std::bit_cast<double>(vote.getSquaredNormBits()),
                            {vote.getPreviousDigest().getHigh(), vote.getPreviousDigest().getLow()}});
    }
    for (const auto vote : in.getReplicas()) {
      out.replicas.push_back({{vote.getShard()},
                              {vote.getHolder()},
                              {vote.getPreviousDigest().getHigh(), vote.getPreviousDigest().getLow()}});
    }
    const Generation ready{in.getReadyFor().getEpoch(), in.getReadyFor().getCounter()};
    if (ready != Generation{}) out.ready_for = ready;
    for (const auto lane : in.getLanes()) {
      out.lanes.push_back({{lane.getLane()}, std::bit_cast<double>(lane.getLossBits())});
    }
    return out;
  });
}

Contribution merge(Contribution a, const Contribution& b) {
  a.shards.insert(a.shards.end(), b.shards.begin(), b.shards.end());
  a.replicas.insert(a.replicas.end(), b.replicas.begin(), b.replicas.end());
  a.lanes.insert(a.lanes.end(), b.lanes.begin(), b.lanes.end());
  if (a.ready_for != b.ready_for) a.ready_for.reset();
  return a;
}

double tree_sum(std::span<const double> values) {
  KINTSUGI_ASSERT(!values.empty());
  const auto sum = [&](const auto& self, std::size_t first, std::size_t count) -> double {
    if (count == 1) return values[first];
    const std::size_t left = left_lanes(static_cast<std::uint32_t>(count));
    return self(self, first, left) + self(self, first + left, count - left);
  };
  return sum(sum, 0, values.size());
}

namespace {

// Items sorted by id, checked to be 0..count-1, each once.
template <class Item, class Id>
Result<std::vector<Item>> complete_set(std::vector<Item> items, std::uint32_t count, Id id, const char* what) {
  std::sort(items.begin(), items.end(), [&](const Item& a, const Item& b) { return id(a) < id(b); });
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i < items.size() && id(items[i]) == i) continue;
    const bool twice = i < items.size() && id(items[i]) < i;
    return Error{ErrorAction::end_generation, fmt::format("the vote has {} {} {}; the plan and its ranks disagree",
                                                          what, twice ? id(items[i]) : i, twice ? "twice" : "missing")};
  }
  if (items.size() != count) {
    return Error{ErrorAction::end_generation,
                 fmt::format("the vote has {} {}, which the job does not have", what, id(items[count]))};
  }
  return items;
}

// Every shard's vote, once all its replicas have acknowledged it with an equal digest of the state before.
Result<std::vector<ShardVote>> complete_shards(const Contribution& all, const Plan& plan) {
  KINTSUGI_TRY_ASSIGN(std::vector<ShardVote> votes, complete_set(
                                                        all.shards, static_cast<std::uint32_t>(plan.shards.size()),
                                                        [](const ShardVote& v) { return v.shard.value; }, "shard"));
  if (KINTSUGI_MUTANT(commits_without_acknowledgement)) return votes;
  const auto earlier = [](const ReplicaVote& a, const ReplicaVote& b) {
    return std::tie(a.shard, a.holder) < std::tie(b.shard, b.holder);
  };
  std::vector<ReplicaVote> acknowledged = all.replicas;
  std::sort(acknowledged.begin(), acknowledged.end(), earlier);
  std::size_t expected = 0;
  for (const ShardVote& vote : votes) {
    for (const RankId holder : plan.shards[vote.shard.value].replicas) {
      ++expected;
      const ReplicaVote wanted{vote.shard, holder, {}};
      const auto found = std::lower_bound(acknowledged.begin(), acknowledged.end(), wanted, earlier);
      if (found == acknowledged.end() || earlier(wanted, *found)) {
        return Error{
            ErrorAction::end_generation,
            fmt::format("the vote lacks the acknowledgement of shard {} by rank {}", vote.shard.value, holder.value)};
      }
      if (found->previous_digest != vote.previous_digest) {
        return Error{
            ErrorAction::end_generation,
            fmt::format("shard {}: the copies of rank {} and rank {} differ ({} and {}); one of them is corrupt",
                        vote.shard.value, plan.primary_of(vote.shard).value, holder.value, to_hex(vote.previous_digest),
                        to_hex(found->previous_digest))};
      }
    }
  }
  if (all.replicas.size() != expected) {
    return Error{ErrorAction::end_generation, fmt::format("the vote has {} acknowledgements of replicas, the plan {}",
                                                          all.replicas.size(), expected)};
  }
  return votes;
}

Digest digest_of(const CommitState& state, const JobConfig& job, const std::vector<ShardVote>& votes) {
  std::vector<ShardDigest> shards;
  for (const ShardVote& vote : votes) shards.push_back({vote.shard, vote.previous_digest});
  const std::uint64_t position = state.step.value * static_cast<std::uint64_t>(job.batch.sequences);
  return state_digest({job_identity(job), state.step, state.updates, position}, shards);
}

}  // namespace

Result<Digest> digest_of_contribution(const CommitState& state, const JobConfig& job, const Plan& plan,
                                      const Contribution& all) {
  KINTSUGI_TRY_ASSIGN(const std::vector<ShardVote> votes, complete_shards(all, plan));
  return digest_of(state, job, votes);
}

Result<DecisionRecord> decide_step(const CommitState& state, const JobConfig& job, const Plan& plan,
                                   const Contribution& all) {
  KINTSUGI_TRY_ASSIGN(const std::vector<ShardVote> votes, complete_shards(all, plan));
  KINTSUGI_TRY_ASSIGN(const std::vector<LaneLoss> lanes, complete_set(
                                                             all.lanes, static_cast<std::uint32_t>(job.batch.lanes),
                                                             [](const LaneLoss& l) { return l.lane.value; }, "lane"));
  std::vector<double> squares, losses;
  for (const ShardVote& vote : votes) squares.push_back(vote.squared_norm);
  for (const LaneLoss& lane : lanes) losses.push_back(lane.loss);
  const double norm = std::sqrt(tree_sum(squares));
  const double loss = tree_sum(losses) / static_cast<double>(job.batch.tokens_per_step());

  DecisionRecord record{state.job, state.lineage, state.generation, {state.step.value + 1}};
  record.outcome = std::isfinite(norm) && std::isfinite(loss) ? Outcome::commit : Outcome::skip;
  record.updates = state.updates + (record.outcome == Outcome::commit ? 1 : 0);
  record.loss = static_cast<float>(loss);
  record.gradient_norm = static_cast<float>(norm);
  record.previous_digest = digest_of(state, job, votes);
  record.failure_domains = plan.failure_domains();
  record.next_generation = all.ready_for;
  if (record.outcome == Outcome::commit) {
    const Step step{record.step.value - (KINTSUGI_MUTANT(stale_learning_rate) && record.step.value > 1 ? 1 : 0)};
    const kernels::AdamwScalars scalars = update_scalars(job.optimizer, step, record.updates, norm);
    record.clip_scale = scalars.clip_scale;
    record.learning_rate = scalars.learning_rate;
    record.bias_correction1 = scalars.bias_correction1;
    record.bias_correction2 = scalars.bias_correction2;
  }
  return record;
}

CommitState advance(const CommitState& state, const DecisionRecord& record) {
  KINTSUGI_ASSERT_MSG(record.step.value == state.step.value + 1, "a record of another step");
  KINTSUGI_ASSERT_MSG(record.job == state.job && record.lineage == state.lineage, "a record of another job or lineage");
  CommitState next = state;
  next.step = record.step;
  next.updates = record.updates;
  return next;
}

}  // namespace kintsugi
