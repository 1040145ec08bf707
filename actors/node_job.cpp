#include "actors/node_job.hpp"

#include <sys/random.h>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include <bit>
#include <map>
#include <optional>

#include "actors/injection.hpp"
#include "actors/job_memory.hpp"
#include "actors/segment_sender.hpp"
#include "actors/spoken.hpp"
#include "engine/control/recovery_codec.hpp"
#include "engine/pipeline/program.hpp"
#include "engine/plan/plan_codec.hpp"
#include "transport/shm/ring_segment.hpp"

namespace kintsugi::actors {

namespace {

namespace shm = transport::shm;

Incarnation fresh_incarnation() {
  Incarnation i;
  KINTSUGI_ASSERT(::getrandom(&i.value, sizeof i.value, 0) == static_cast<ssize_t>(sizeof i.value));
  return i;
}

class NodeJob final : public caf::event_based_actor {
 public:
  NodeJob(caf::actor_config& config, NodeServices& services, JobId job, caf::actor owner)
      : caf::event_based_actor(config), services_(services), job_(job), owner_(std::move(owner)) {}

  const char* name() const override { return "node_job"; }

  caf::behavior make_behavior() override {
    return {
        [this](const JobFrame& m) { on_job_frame(m.message); },
        [this](const FromRank& m) { on_rank_frame(m); },
        [this](const RankGone& m) { on_gone(m); },
        [this](const SupervisionChanged& m) { pass_on(m.supervision); },
        [this](const Restate&) { restate(); },
    };
  }

  void on_exit() override {
    for (auto& [rank, local] : ranks_) send_exit(local.supervisor, caf::exit_reason::user_shutdown);
    ranks_.clear();
    owner_ = nullptr;
  }

 private:
  struct Local {
    caf::actor supervisor;
    std::optional<ControlMessage> need;  // schemas::NeedSegments of this generation
    FileDescriptor arena;
  };

  void on_job_frame(const ControlMessage& message) {
    Result<void> outcome;
    const Result<void> read = guarded([&] { outcome = handle(message); });
    if (!read) outcome = read;
    if (!outcome && !ranks_.empty()) fail(ranks_.begin()->first, outcome.error());
  }

  Result<void> handle(const ControlMessage& message) {
    const schemas::Message::Reader in = message.get();
    switch (message.which()) {
      case schemas::Message::START_RANKS: start_ranks(in.getStartRanks()); return {};
      case schemas::Message::FENCE:
        if (read_generation(in.getFence().getGeneration()) <= generation_) return {};  // of a lower epoch, or overtaken
        fence(in.getFence());
        break;
      case schemas::Message::PREPARE: KINTSUGI_TRY(make_rings(in.getPrepare())); break;
      case schemas::Message::RESUME: resume(read_generation(in.getResume().getGeneration())); break;
      case schemas::Message::KILL_RANK: kill(in.getKillRank()); return {};
      case schemas::Message::INJECT: return inject(in.getInject());
      case schemas::Message::STOP: stop(in.getStop().getWhy().cStr()); return {};
      case schemas::Message::STEPS_WANTED: {
        const auto wanted = in.getStepsWanted();
        spoken_.send_steps_between(job_, {wanted.getAfter()}, {wanted.getUpTo()}, to_supervisor());
        return {};
      }
      default: break;
    }
    // A fence is for all that live. What follows it is for the members of its plan: a rank that came up since is not one.
    const bool is_for_all = message.which() == schemas::Message::FENCE;
    for (auto& [rank, local] : ranks_) {
      if (is_for_all || (plan_ && plan_->has(rank))) to_rank(local, message.copy_frame(), {});
    }
    return {};
  }

  void start_ranks(schemas::StartRanks::Reader in) {
    if (stopping_) return;
    threads_ = in.getThreads();
    for (const std::uint32_t r : in.getRanks()) {
      const RankStart start{job_, {r}, fresh_incarnation(), in.getThreads(), in.getUcxOnly()};
      ranks_[{r}].supervisor = spawn_rank_supervisor(system(), services_, start, this);
    }
  }

  void kill(schemas::KillRank::Reader in) {
    const auto at = ranks_.find({in.getRank()});
    if (at != ranks_.end()) send(at->second.supervisor, KillRank{in.getWhy().cStr()});
  }

  Result<void> inject(schemas::Inject::Reader in) {
    const RankId rank{in.getTarget().getRank()};
    if (in.getFault() == schemas::Inject::Fault::CORRUPT) return memory_.corrupt(rank, {in.getShard()});
    const auto at = ranks_.find(rank);
    if (at != ranks_.end()) send(at->second.supervisor, SignalRank{signal_of(in.getFault())});
    return {};
  }

  void stop(const std::string& why) {
    stopping_ = true;
    for (auto& [rank, local] : ranks_) send(local.supervisor, StopRank{why});
    end_if_done();
  }

  // Memory of the generation before goes; what its ranks still have mapped goes with them or with their trainers.
  void fence(schemas::Fence::Reader in) {
    generation_ = read_generation(in.getGeneration());
    plan_.reset();
    in_force_ = false;
    spoken_.fenced();
    ring_ = {};
    for (auto& [rank, local] : ranks_) {
      local.need.reset();
      local.arena = {};
    }
    const std::vector<RankReport> left_behind = memory_.left_behind([&](RankId rank) { return ranks_.contains(rank); });
    tell_supervisor([&](schemas::Message::Builder m) {
      auto out = m.initNodeReport();
      out.setJob(job_.value);
      write_generation(generation_, out.initGeneration());
      auto list = out.initLeftBehind(static_cast<unsigned>(left_behind.size()));
      for (unsigned i = 0; i < list.size(); ++i) write_holding(left_behind[i], list[i]);
    });
  }

  std::vector<RankId> local_members() const {
    std::vector<RankId> members;
    for (const auto& [rank, local] : ranks_) {
      if (plan_->has(rank)) members.push_back(rank);
    }
    return members;
  }

  // Rings hold every message that may be lent at once, so that no send waits for a receiver that waits for us.
  Result<void> make_rings(schemas::Prepare::Reader in) {
    KINTSUGI_TRY_ASSIGN(const JobConfig job, parse_job(in.getJobFile().cStr(), "the job as sent by the supervisor"));
    KINTSUGI_TRY_ASSIGN(Plan plan, read_plan(in.getPlan()));
    if (plan.generation != generation_) return {};  // overtaken by a fence
    send(owner_, OrphanLimit{job_, seconds(job.resilience.orphan_limit)});
    const ModelLayout layout(job.model);
    plan_ = std::move(plan);
    std::vector<KeptSum> sums;
    if (in.hasTransition()) sums = read_transition(in.getTransition()).sums;
    const std::uint64_t lent = most_lent_messages(*plan_, Redo(*plan_, std::move(sums)), layout, job);
    shm::RingShape shape;
    shape.ranks = static_cast<std::uint32_t>(local_members().size());
    shape.slots = std::max<std::uint32_t>(shape.slots, static_cast<std::uint32_t>(std::bit_ceil(lent)));
    if (shape.ranks == 0) return {};
    KINTSUGI_TRY_ASSIGN(ring_, shm::create_ring_segment(shape));
    return {};
  }

  // Every member holds what the plan says: what no plan asks for any more may go.
  void resume(Generation generation) {
    if (!plan_ || generation != generation_) return;
    in_force_ = true;
    memory_.keep_only(*plan_);
  }

  // In this order: a supervisor that knows the state decides, and then it must know the steps.
  void restate() {
    const auto up = to_supervisor();
    spoken_.send_steps(job_, up);
    const std::vector<RankReport> left_behind = memory_.left_behind([&](RankId rank) { return ranks_.contains(rank); });
    up(make_frame([&](schemas::Message::Builder m) {
      auto state = m.initJobState();
      state.setJob(job_.value);
      write_generation(generation_, state.initGeneration());
      if (in_force_) write_plan(*plan_, state.initPlan());
      auto living = state.initLiving(static_cast<unsigned>(ranks_.size()));
      unsigned i = 0;
      for (const auto& [rank, local] : ranks_) {
        living[i].setRank(rank.value);
        living[i].setPid(spoken_.pid(rank));
        living[i].setKernelVariant(spoken_.kernel_variant(rank));
        ++i;
      }
      auto gone = state.initGone(static_cast<unsigned>(left_behind.size()));
      for (i = 0; i < gone.size(); ++i) gone.set(i, left_behind[i].rank.value);
      state.setThreads(threads_);
    }));
    spoken_.send_ends(up);
  }

  Spoken::Send to_supervisor() {
    return
        [this](transport::Frame frame) { send(owner_, UpFrame{std::make_shared<transport::Frame>(std::move(frame))}); };
  }

  void pass_on(const Supervision& supervision) {
    for (auto& [rank, local] : ranks_) {
      to_rank(local, make_frame([&](schemas::Message::Builder m) {
                auto out = m.initSupervision();
                out.setLost(supervision.lost);
                out.setParkAtNs(supervision.park_at.ns);
              }),
              {});
    }
  }

  void to_rank(Local& local, transport::Frame frame, std::vector<FileDescriptor> descriptors) {
    send(local.supervisor, ToRank{std::make_shared<transport::Frame>(std::move(frame)),
                                  std::make_shared<std::vector<FileDescriptor>>(std::move(descriptors))});
  }

  template <class Fill>
  void tell_supervisor(Fill fill) {
    send(owner_, UpFrame{std::make_shared<transport::Frame>(make_frame(fill))});
  }

  void on_rank_frame(const FromRank& m) {
    if (m.message.which() != schemas::Message::NEED_SEGMENTS) {
      static_cast<void>(guarded([&] { spoken_.keep(m.rank, m.message); }));
      if (m.message.which() == schemas::Message::STEP_KNOWN) return;
      send(owner_, UpFrame{std::make_shared<transport::Frame>(m.message.copy_frame())});
      return;
    }
    Result<void> outcome;
    const Result<void> read = guarded([&] { outcome = on_need(m.rank, m.message); });
    if (!read) outcome = read;
    if (!outcome) fail(m.rank, outcome.error());
  }

  // Once all local members have said what they need, each gets its memory and a view of the others' arenas.
  Result<void> on_need(RankId rank, const ControlMessage& message) {
    const auto need = message.get().getNeedSegments();
    const auto at = ranks_.find(rank);
    if (at == ranks_.end() || !plan_ || read_generation(need.getGeneration()) != generation_) return {};  // overtaken
    KINTSUGI_TRY_ASSIGN(at->second.arena, shm::create_shared_memory("kintsugi-arena", need.getArenaBytes()));
    at->second.need = message;
    const std::vector<RankId> members = local_members();
    for (const RankId member : members) {
      if (!ranks_.at(member).need) return {};
    }
    for (const RankId member : members) KINTSUGI_TRY(send_segments(member, members));
    return {};
  }

  Result<void> send_segments(RankId to, const std::vector<RankId>& members) {
    SegmentSender segments(generation_, [&](transport::Frame frame, std::vector<FileDescriptor> descriptors) {
      to_rank(ranks_.at(to), std::move(frame), std::move(descriptors));
    });
    KINTSUGI_TRY(segments.add(ring_, [](auto part) { part.setRing(); }));
    KINTSUGI_TRY_ASSIGN(const FileDescriptor* const board, memory_.board(to));
    KINTSUGI_TRY(segments.add(*board, [](auto part) { part.setBoard(); }));
    for (const RankId member : members) {
      KINTSUGI_TRY(segments.add(ranks_.at(member).arena, [member](auto part) { part.setArena(member.value); }));
    }
    for (const auto copy : ranks_.at(to).need->get().getNeedSegments().getCopies()) {
      const ShardId shard{copy.getShard()};
      if (copy.getTakeOver()) KINTSUGI_TRY(memory_.take_over(to, shard, {copy.getFrom()}));
      if (!copy.getTakeOver()) KINTSUGI_TRY(memory_.create(to, shard, copy.getBytes()));
      KINTSUGI_TRY(segments.add(memory_.copy(to, shard), [shard](auto part) { part.setCopy(shard.value); }));
    }
    segments.finish();
    return {};
  }

  void fail(RankId rank, const Error& error) {
    tell_supervisor([&](schemas::Message::Builder m) {
      auto failed = m.initFailed();
      failed.setJob(job_.value);
      failed.setRank(rank.value);
      failed.setAction(static_cast<std::uint8_t>(error.action));
      failed.setMessage(error.message);
      write_generation(generation_, failed.initGeneration());
    });
  }

  void on_gone(const RankGone& m) {
    ranks_.erase(m.rank);
    spoken_.forget(m.rank);
    // What it decided and did not get to say.
    const std::set<Step> unheard = spoken_.keep_unheard(memory_.records_of(m.rank));
    for (const Step step : unheard) spoken_.send_steps_between(job_, {step.value - 1}, step, to_supervisor());
    tell_supervisor([&](schemas::Message::Builder out) {
      auto down = out.initRankDown();
      down.setJob(job_.value);
      down.setRank(m.rank.value);
      down.setIncarnation(m.incarnation.value);
      down.setWhy(m.why);
      down.setExpected(m.expected);
    });
    end_if_done();
  }

  // While the job lives, what ranks left behind does.
  void end_if_done() {
    if (!stopping_ || !ranks_.empty()) return;
    send(owner_, NodeJobEnded{job_});
    quit();
  }

  NodeServices& services_;
  const JobId job_;
  caf::actor owner_;
  Generation generation_;     // of the newest fence
  std::optional<Plan> plan_;  // of that generation, once it is here
  bool in_force_ = false;     // that plan was resumed
  FileDescriptor ring_;       // likewise
  Spoken spoken_;
  std::uint32_t threads_ = 0;  // of each rank
  JobMemory memory_;
  std::map<RankId, Local> ranks_;  // whose processes are not known to be gone
  bool stopping_ = false;
};

}  // namespace

caf::actor spawn_node_job(caf::actor_system& system, NodeServices& services, JobId job, caf::actor owner) {
  return system.spawn<NodeJob>(std::ref(services), job, std::move(owner));
}

}  // namespace kintsugi::actors
