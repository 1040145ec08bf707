#include "tests/engine/pipeline/rank_threads.hpp"

#include <algorithm>
#include <bit>
#include <thread>

#include "engine/plan/planner.hpp"
#include "transport/shm/shm_carrier.hpp"

namespace kintsugi::test {

namespace shm = transport::shm;
using transport::MessageKey;

namespace {

// Asks the hook before every call.
class HookedPeers final : public transport::PointToPoint {
 public:
  HookedPeers(std::unique_ptr<PointToPoint> peers, RankId self, Hook hook)
      : peers_(std::move(peers)), self_(self), hook_(std::move(hook)) {}

  Result<transport::SendTicket> send(RankId to, const MessageKey& key, std::span<const std::byte> bytes,
                                     Instant deadline) override {
    KINTSUGI_TRY(hook_({self_, PeerCall::Kind::send, to, key}));
    return peers_->send(to, key, bytes, deadline);
  }
  Result<void> wait_sent(transport::SendTicket ticket, Instant deadline) override {
    KINTSUGI_TRY(hook_({self_, PeerCall::Kind::wait_sent, ticket.to, {}}));
    return peers_->wait_sent(ticket, deadline);
  }
  Result<transport::Arrival> receive(RankId from, const MessageKey& key, std::size_t bytes, Instant deadline) override {
    KINTSUGI_TRY(hook_({self_, PeerCall::Kind::receive, from, key}));
    return peers_->receive(from, key, bytes, deadline);
  }
  void release(const transport::Arrival& arrival) override { peers_->release(arrival); }
  void cancel(const Error& why) override { peers_->cancel(why); }
  std::map<RankId, transport::PeerTraffic> traffic() const override { return peers_->traffic(); }

 private:
  const std::unique_ptr<PointToPoint> peers_;
  const RankId self_;
  const Hook hook_;
};

std::byte* host_address(kernels::Device& device, const kernels::View& view) {
  std::byte* address = nullptr;
  const auto stream = device.create_stream();
  stream->enqueue("address", [&]() -> Result<void> {
    address = device.host_address(view);
    return {};
  });
  must(stream->synchronize(kNoDeadline));
  return address;
}

}  // namespace

void RankThreads::start(RankId rank, NodeId node) {
  Rank& r = ranks_[rank];
  if (r.state) return;
  r.node = node;
  r.device = devices_(rank);
  r.state = std::make_unique<RankState>(*r.device, rank);
  r.board = must(shm::create_shared_memory("board", RankState::board_bytes()));
  must(r.state->set_board(r.board.get()));
}

void RankThreads::add_memory(RankId rank, ShardId shard, FileDescriptor memory) {
  Rank& r = ranks_.at(rank);
  must(r.state->add(layout_.shard(shard), memory.get()));
  r.copies.insert_or_assign(shard, std::move(memory));
}

void RankThreads::take_memory(const std::vector<ShardMove>& moves) {
  for (const ShardMove& move : moves) {
    if (!move.take_over) {
      const std::size_t bytes = RankState::copy_bytes(layout_.shard(move.shard));
      add_memory(move.to, move.shard, must(shm::create_shared_memory("copy", bytes)));
      continue;
    }
    std::map<ShardId, FileDescriptor>& left = ranks_.at(move.from).copies;
    EXPECT_EQ(ranks_.at(move.from).node, ranks_.at(move.to).node);
    add_memory(move.to, move.shard, std::move(left.at(move.shard)));
    left.erase(move.shard);
  }
}

void RankThreads::open(const Plan& plan, const std::optional<Transition>& transition, const Hook& hook) {
  std::map<RankId, std::unique_ptr<Salvage>> salvage;
  for (auto& [rank, r] : ranks_) {
    if (r.trainer && plan.has(rank)) salvage[rank] = r.trainer->salvage(transition);
    r.trainer.reset();
    if (!plan.has(rank)) r.state.reset();
  }
  plan_ = plan;
  transition_ = transition;
  const Redo redo(plan, transition ? transition->sums : std::vector<KeptSum>{});
  shm::RingShape shape;
  shape.ranks = plan.rank_count();
  shape.slots = static_cast<std::uint32_t>(std::bit_ceil(most_lent_messages(plan, redo, layout_, job_)));
  const FileDescriptor ring = must(shm::create_ring_segment(shape));
  for (const PlanRank& member : plan.ranks) start(member.rank, member.node);
  if (transition) take_memory(transition->moves);
  for (const PlanRank& member : plan.ranks) {
    Rank& r = ranks_.at(member.rank);
    r.blueprint = RankBlueprint::make(job_, plan, transition, member.rank, r.device->ops());
    r.arena = must(shm::create_shared_memory("arena", r.blueprint->arena_bytes));
    for (const Shard& shard : r.blueprint->copies()) {
      if (r.copies.contains(shard.id)) continue;
      add_memory(member.rank, shard.id, must(shm::create_shared_memory("copy", RankState::copy_bytes(shard))));
    }
  }
  for (const PlanRank& member : plan.ranks) {
    make_trainer(member.rank, ring.get(), hook, std::move(salvage[member.rank]));
  }
}

void RankThreads::make_trainer(RankId rank, int ring, const Hook& hook, std::unique_ptr<Salvage> salvage) {
  Rank& r = ranks_.at(rank);
  std::vector<RankId> all;
  for (const PlanRank& member : plan_.ranks) all.push_back(member.rank);
  auto carrier = must(shm::ShmCarrier::open({rank, all, {plan_.job, plan_.lineage, plan_.generation}}, ring));
  auto arena = must(r.device->map_shared(r.arena.get(), 0, r.blueprint->arena_bytes, true));
  const kernels::View view = arena->view();
  carrier->register_own_arena({host_address(*r.device, view), view.bytes()});
  for (const RankId peer : all) {
    if (peer != rank) must(carrier->register_peer_arena(peer, ranks_.at(peer).arena.get()));
  }
  std::unique_ptr<transport::PointToPoint> peers = std::move(carrier);
  if (hook) peers = std::make_unique<HookedPeers>(std::move(peers), rank, hook);
  r.trainer = must(Trainer::create({std::move(r.blueprint),
                                    *r.device,
                                    std::move(peers),
                                    clock_,
                                    std::move(arena),
                                    *r.state,
                                    seconds(60),
                                    {rank.value + 1},
                                    std::move(salvage)}));
}

std::map<RankId, Result<void>> RankThreads::run(bool together, const Work& work) {
  std::map<RankId, Result<void>> ends;
  for (const PlanRank& member : plan_.ranks) ends[member.rank] = {};
  std::vector<std::thread> threads;
  for (auto& [rank, end] : ends) {
    threads.emplace_back([this, together, &work, self = rank, &end = end] {
      end = work(trainer(self));
      if (end.ok() || !together) return;
      for (const PlanRank& other : plan_.ranks) {
        if (other.rank == self) continue;
        trainer(other.rank).cancel({ErrorAction::cancelled, "rank " + to_string(self) + ": " + end.error().message});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

void RankThreads::kill(RankId rank, Remains remains) {
  Rank& r = ranks_.at(rank);
  r.trainer.reset();
  r.state.reset();
  if (remains == Remains::nothing) ranks_.erase(rank);
  if (remains != Remains::memory_applying) return;
  for (const auto& [shard, memory] : r.copies) {
    const shm::Mapping mapping = must(shm::Mapping::map(memory.get(), shm::Access::read_write));
    const ShardSlot slot(mapping.bytes(), layout_.shard(shard));
    if (slot.is_formatted()) slot.begin({rank.value + 1});
  }
}

std::vector<RankReport> RankThreads::reports() const {
  std::vector<RankReport> reports;
  for (const auto& [rank, r] : ranks_) {
    if (r.state) {
      reports.push_back({rank, r.node, true, r.trainer->inventory(), r.trainer->record(), r.trainer->sums()});
      continue;
    }
    RankReport& left = reports.emplace_back(RankReport{rank, r.node, false, {}, {}});
    for (const auto& [shard, memory] : r.copies) {
      const shm::Mapping mapping = must(shm::Mapping::map(memory.get(), shm::Access::read));
      const std::optional<ShardVersion> held = stable_version(mapping.bytes(), shard);
      if (held) left.copies.push_back({shard, held->version, held->updates, held->digest});
    }
    const shm::Mapping board = must(shm::Mapping::map(r.board.get(), shm::Access::read));
    if (const auto record = RecordBoard(board.bytes()).newest()) left.record = must(decode_record(*record));
  }
  return reports;
}

Transition RankThreads::recover(const std::vector<PlanMember>& members, const std::optional<DecisionRecord>& known,
                                const Hook& hook) {
  StepUnderWay interrupted{plan_, {}, {}};
  if (transition_) interrupted = {plan_, transition_->step, transition_->sums};
  const std::vector<RankReport> all = reports();
  const Cut cut = decide_cut(all, known, static_cast<std::uint32_t>(layout_.shards().size()));
  EXPECT_TRUE(cut.lost.empty());
  EXPECT_TRUE(cut.disagreements.empty());
  for (const auto& [rank, r] : ranks_) {
    if (r.state && cut.record) must(r.trainer->complete(*cut.record));
  }
  PlanRequest request{plan_.job, plan_.lineage, {1, plan_.generation.counter + 1}, members};
  request.copies = reachable_copies(cut, all, members);
  request.in_force = &plan_;
  const Plan plan = must(make_plan(request, job_, layout_));
  const Transition transition = plan_transition(plan, cut, all, interrupted);
  open(plan, transition, hook);
  return transition;
}

}  // namespace kintsugi::test
