#include "actors/node_job.hpp"

#include <sys/random.h>

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

struct HeldJob {
  struct Local {
    caf::actor supervisor;
    std::optional<ControlMessage> need;  // schemas::NeedSegments of this generation
    FileDescriptor arena;
  };

  NodeServices& services;
  const JobId job;
  caf::actor owner;
  Generation generation = {};               // of the newest fence
  std::optional<Plan> plan = std::nullopt;  // of that generation, once it is here
  bool in_force = false;                    // that plan was resumed
  FileDescriptor ring = {};                 // likewise
  Spoken spoken = {};
  std::uint32_t threads = 0;  // of each rank
  JobMemory memory = {};
  std::map<RankId, Local> ranks = {};  // whose processes are not known to be gone
  bool stopping = false;
};

class NodeJob final : public Body {
 public:
  NodeJob(Life life, HeldJob& held) : Body(std::move(life)), held_(held) {}

  caf::behavior make_behavior() override {
    // What was lost may have been awaited; a generation that starts over is told all of it anew.
    if (life().before && life().before->letter_lost && !held_.ranks.empty()) {
      fail(held_.ranks.begin()->first,
           {ErrorAction::end_generation, "its node's part of the job crashed: " + life().before->why});
    }
    return {
        [this](const JobFrame& m) { on_job_frame(m.message); },
        [this](const FromRank& m) { on_rank_frame(m); },
        [this](const RankGone& m) { on_gone(m); },
        [this](const SupervisionChanged& m) { pass_on(m.supervision); },
        [this](const Restate&) { restate(); },
    };
  }

  void on_end() override {
    for (auto& [rank, local] : held_.ranks) end_child(local.supervisor);
    held_.ranks.clear();
    held_.owner = nullptr;
  }

 private:
  using Local = HeldJob::Local;

  void on_job_frame(const ControlMessage& message) {
    Result<void> outcome;
    const Result<void> read = guarded([&] { outcome = handle(message); });
    if (!read) outcome = read;
    if (!outcome && !held_.ranks.empty()) fail(held_.ranks.begin()->first, outcome.error());
  }

  Result<void> handle(const ControlMessage& message) {
    const schemas::Message::Reader in = message.get();
    switch (message.which()) {
      case schemas::Message::START_RANKS: start_ranks(in.getStartRanks()); return {};
      case schemas::Message::FENCE:
        if (read_generation(in.getFence().getGeneration()) <= held_.generation)
          return {};  // of a lower epoch, or overtaken
        fence(in.getFence());
        break;
      case schemas::Message::PREPARE: KINTSUGI_TRY(make_rings(in.getPrepare())); break;
      case schemas::Message::RESUME: resume(read_generation(in.getResume().getGeneration())); break;
      case schemas::Message::KILL_RANK: kill(in.getKillRank()); return {};
      case schemas::Message::INJECT: return inject(in.getInject(), message);
      case schemas::Message::STOP: stop(in.getStop().getWhy().cStr()); return {};
      case schemas::Message::STEPS_WANTED: {
        const auto wanted = in.getStepsWanted();
        held_.spoken.send_steps_between(held_.job, {wanted.getAfter()}, {wanted.getUpTo()}, to_supervisor());
        return {};
      }
      default: break;
    }
    // A fence is for all that live. What follows it is for the members of its plan: a rank that came up since is not one.
    const bool is_for_all = message.which() == schemas::Message::FENCE;
    for (auto& [rank, local] : held_.ranks) {
      if (is_for_all || (held_.plan && held_.plan->has(rank))) to_rank(local, message.copy_frame(), {});
    }
    return {};
  }

  void start_ranks(schemas::StartRanks::Reader in) {
    if (held_.stopping) return;
    held_.threads = in.getThreads();
    for (const std::uint32_t r : in.getRanks()) {
      const RankStart start{held_.job, {r}, fresh_incarnation(), in.getThreads(), in.getUcxOnly()};
      held_.ranks[{r}].supervisor =
          spawn_rank_supervisor(place("rank_supervisor@" + to_string(start.rank)), held_.services, start);
    }
  }

  void kill(schemas::KillRank::Reader in) {
    const auto at = held_.ranks.find({in.getRank()});
    if (at != held_.ranks.end()) send(at->second.supervisor, KillRank{in.getWhy().cStr()});
  }

  Result<void> inject(schemas::Inject::Reader in, const ControlMessage& message) {
    const bool crash = in.getFault() == schemas::Inject::Fault::CRASH;
    const RankId rank{crash ? parse_actor(in.getTarget().getActor().cStr()).number.value_or(0)
                            : in.getTarget().getRank()};
    if (in.getFault() == schemas::Inject::Fault::CORRUPT) return held_.memory.corrupt(rank, {in.getShard()});
    const auto at = held_.ranks.find(rank);
    if (at == held_.ranks.end()) return {};
    if (crash)
      to_rank(at->second, message.copy_frame(), {});
    else
      send(at->second.supervisor, SignalRank{signal_of(in.getFault())});
    return {};
  }

  void stop(const std::string& why) {
    held_.stopping = true;
    for (auto& [rank, local] : held_.ranks) send(local.supervisor, StopRank{why});
    end_if_done();
  }

  // Memory of the generation before goes; what its ranks still have mapped goes with them or with their trainers.
  void fence(schemas::Fence::Reader in) {
    held_.generation = read_generation(in.getGeneration());
    held_.plan.reset();
    held_.in_force = false;
    held_.spoken.fenced();
    held_.ring = {};
    for (auto& [rank, local] : held_.ranks) {
      local.need.reset();
      local.arena = {};
    }
    const std::vector<RankReport> left_behind =
        held_.memory.left_behind([&](RankId rank) { return held_.ranks.contains(rank); });
    tell_supervisor([&](schemas::Message::Builder m) {
      auto out = m.initNodeReport();
      out.setJob(held_.job.value);
      write_generation(held_.generation, out.initGeneration());
      auto list = out.initLeftBehind(static_cast<unsigned>(left_behind.size()));
      for (unsigned i = 0; i < list.size(); ++i) write_holding(left_behind[i], list[i]);
    });
  }

  std::vector<RankId> local_members() const {
    std::vector<RankId> members;
    for (const auto& [rank, local] : held_.ranks) {
      if (held_.plan->has(rank)) members.push_back(rank);
    }
    return members;
  }

  // Rings hold every message that may be lent at once, so that no send waits for a receiver that waits for us.
  Result<void> make_rings(schemas::Prepare::Reader in) {
    KINTSUGI_TRY_ASSIGN(const JobConfig job, parse_job(in.getJobFile().cStr(), "the job as sent by the supervisor"));
    KINTSUGI_TRY_ASSIGN(Plan plan, read_plan(in.getPlan()));
    if (plan.generation != held_.generation) return {};  // overtaken by a fence
    send(held_.owner, OrphanLimit{held_.job, seconds(job.resilience.orphan_limit)});
    const ModelLayout layout(job.model);
    held_.plan = std::move(plan);
    std::vector<KeptSum> sums;
    if (in.hasTransition()) sums = read_transition(in.getTransition()).sums;
    const std::uint64_t lent = most_lent_messages(*held_.plan, Redo(*held_.plan, std::move(sums)), layout, job);
    shm::RingShape shape;
    shape.ranks = static_cast<std::uint32_t>(local_members().size());
    shape.slots = std::max<std::uint32_t>(shape.slots, static_cast<std::uint32_t>(std::bit_ceil(lent)));
    if (shape.ranks == 0) return {};
    KINTSUGI_TRY_ASSIGN(held_.ring, shm::create_ring_segment(shape));
    return {};
  }

  // Every member holds what the plan says: what no plan asks for any more may go.
  void resume(Generation generation) {
    if (!held_.plan || generation != held_.generation) return;
    held_.in_force = true;
    held_.memory.keep_only(*held_.plan);
  }

  // In this order: a supervisor that knows the state decides, and then it must know the steps.
  void restate() {
    const auto up = to_supervisor();
    held_.spoken.send_steps(held_.job, up);
    const std::vector<RankReport> left_behind =
        held_.memory.left_behind([&](RankId rank) { return held_.ranks.contains(rank); });
    up(make_frame([&](schemas::Message::Builder m) {
      auto state = m.initJobState();
      state.setJob(held_.job.value);
      write_generation(held_.generation, state.initGeneration());
      if (held_.in_force) write_plan(*held_.plan, state.initPlan());
      auto living = state.initLiving(static_cast<unsigned>(held_.ranks.size()));
      unsigned i = 0;
      for (const auto& [rank, local] : held_.ranks) {
        living[i].setRank(rank.value);
        living[i].setPid(held_.spoken.pid(rank));
        living[i].setKernelVariant(held_.spoken.kernel_variant(rank));
        ++i;
      }
      auto gone = state.initGone(static_cast<unsigned>(left_behind.size()));
      for (i = 0; i < gone.size(); ++i) gone.set(i, left_behind[i].rank.value);
      state.setThreads(held_.threads);
    }));
    held_.spoken.send_ends(up);
    held_.spoken.send_actors(up);
  }

  Spoken::Send to_supervisor() {
    return [this](transport::Frame frame) {
      send(held_.owner, UpFrame{std::make_shared<transport::Frame>(std::move(frame))});
    };
  }

  void pass_on(const Supervision& supervision) {
    for (auto& [rank, local] : held_.ranks) {
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
    send(held_.owner, UpFrame{std::make_shared<transport::Frame>(make_frame(fill))});
  }

  void on_rank_frame(const FromRank& m) {
    if (m.message.which() != schemas::Message::NEED_SEGMENTS) {
      static_cast<void>(guarded([&] { held_.spoken.keep(m.rank, m.message); }));
      if (m.message.which() == schemas::Message::STEP_KNOWN) return;
      send(held_.owner, UpFrame{std::make_shared<transport::Frame>(m.message.copy_frame())});
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
    const auto at = held_.ranks.find(rank);
    if (at == held_.ranks.end() || !held_.plan || read_generation(need.getGeneration()) != held_.generation)
      return {};  // overtaken
    KINTSUGI_TRY_ASSIGN(at->second.arena, shm::create_shared_memory("kintsugi-arena", need.getArenaBytes()));
    at->second.need = message;
    const std::vector<RankId> members = local_members();
    for (const RankId member : members) {
      if (!held_.ranks.at(member).need) return {};
    }
    for (const RankId member : members) KINTSUGI_TRY(send_segments(member, members));
    return {};
  }

  Result<void> send_segments(RankId to, const std::vector<RankId>& members) {
    SegmentSender segments(held_.generation, [&](transport::Frame frame, std::vector<FileDescriptor> descriptors) {
      to_rank(held_.ranks.at(to), std::move(frame), std::move(descriptors));
    });
    KINTSUGI_TRY(segments.add(held_.ring, [](auto part) { part.setRing(); }));
    KINTSUGI_TRY_ASSIGN(const FileDescriptor* const board, held_.memory.board(to));
    KINTSUGI_TRY(segments.add(*board, [](auto part) { part.setBoard(); }));
    for (const RankId member : members) {
      KINTSUGI_TRY(segments.add(held_.ranks.at(member).arena, [member](auto part) { part.setArena(member.value); }));
    }
    for (const auto copy : held_.ranks.at(to).need->get().getNeedSegments().getCopies()) {
      const ShardId shard{copy.getShard()};
      if (copy.getTakeOver()) KINTSUGI_TRY(held_.memory.take_over(to, shard, {copy.getFrom()}));
      if (!copy.getTakeOver()) KINTSUGI_TRY(held_.memory.create(to, shard, copy.getBytes()));
      KINTSUGI_TRY(segments.add(held_.memory.copy(to, shard), [shard](auto part) { part.setCopy(shard.value); }));
    }
    segments.finish();
    return {};
  }

  void fail(RankId rank, const Error& error) {
    tell_supervisor([&](schemas::Message::Builder m) {
      auto failed = m.initFailed();
      failed.setJob(held_.job.value);
      failed.setRank(rank.value);
      failed.setAction(static_cast<std::uint8_t>(error.action));
      failed.setMessage(error.message);
      write_generation(held_.generation, failed.initGeneration());
    });
  }

  void on_gone(const RankGone& m) {
    held_.ranks.erase(m.rank);
    held_.spoken.forget(m.rank);
    // What it decided and did not get to say.
    const std::set<Step> unheard = held_.spoken.keep_unheard(held_.memory.records_of(m.rank));
    for (const Step step : unheard) {
      held_.spoken.send_steps_between(held_.job, {step.value - 1}, step, to_supervisor());
    }
    tell_supervisor([&](schemas::Message::Builder out) {
      auto down = out.initRankDown();
      down.setJob(held_.job.value);
      down.setRank(m.rank.value);
      down.setIncarnation(m.incarnation.value);
      down.setWhy(m.why);
      down.setExpected(m.expected);
    });
    end_if_done();
  }

  // While the job lives, what ranks left behind does.
  void end_if_done() {
    if (!held_.stopping || !held_.ranks.empty()) return;
    send(held_.owner, NodeJobEnded{held_.job});
    quit();
  }

  HeldJob& held_;
};

}  // namespace

caf::actor spawn_node_job(Place place, NodeServices& services, JobId job) {
  auto held = std::shared_ptr<HeldJob>(new HeldJob{services, job, place.parent});
  return spawn_supervised(std::move(place), bodies_of<NodeJob>(std::move(held)));
}

}  // namespace kintsugi::actors
