#include "actors/node_job.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include <bit>
#include <map>

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
  NodeJob(caf::actor_config& config, NodeServices& services, const ControlMessage& start, caf::actor owner)
      : caf::event_based_actor(config), services_(services), start_(start), owner_(std::move(owner)) {}

  const char* name() const override { return "node_job"; }

  caf::behavior make_behavior() override {
    if (const Result<void> started = guarded([&] { start_ranks(start_.get().getStartRanks()); }); !started) quit();
    return {
        [this](const JobFrame& m) { on_job_frame(m.message); },
        [this](const FromRank& m) { on_rank_frame(m); },
        [this](const RankGone& m) { on_gone(m); },
    };
  }

  void on_exit() override {
    for (auto& [rank, local] : ranks_) {
      if (local.supervisor) send_exit(local.supervisor, caf::exit_reason::user_shutdown);
    }
    ranks_.clear();
    owner_ = nullptr;
  }

 private:
  struct Local {
    caf::actor supervisor;
    FileDescriptor arena;
    FileDescriptor state;
    std::uint64_t arena_bytes = 0;
  };

  void start_ranks(schemas::StartRanks::Reader in) {
    job_ = {in.getJob()};
    for (const std::uint32_t r : in.getRanks()) {
      const RankStart start{job_,
                            {r},
                            fresh_incarnation(),
                            {in.getLineage()},
                            read_generation(in.getGeneration()),
                            in.getThreads(),
                            in.getUcxOnly()};
      ranks_[{r}].supervisor = spawn_rank_supervisor(system(), services_, start, this);
    }
  }

  void to_rank(Local& local, transport::Frame frame, std::vector<FileDescriptor> descriptors) {
    if (!local.supervisor) return;
    send(local.supervisor, ToRank{std::make_shared<transport::Frame>(std::move(frame)),
                                  std::make_shared<std::vector<FileDescriptor>>(std::move(descriptors))});
  }

  void on_job_frame(const ControlMessage& message) {
    Result<void> outcome;
    const Result<void> read = guarded([&] {
      if (message.which() == schemas::Message::STOP) {
        for (auto& [rank, local] : ranks_) {
          if (local.supervisor) send(local.supervisor, StopRank{message.get().getStop().getWhy().cStr()});
        }
        return;
      }
      if (message.which() == schemas::Message::PREPARE) outcome = make_rings(message.get().getPrepare());
      for (auto& [rank, local] : ranks_) to_rank(local, message.copy_frame(), {});
    });
    if (!read) outcome = read;
    if (!outcome) fail(ranks_.begin()->first, outcome.error());
  }

  // Rings hold every message that may be lent at once, so that no send waits for a receiver that waits for us.
  Result<void> make_rings(schemas::Prepare::Reader in) {
    KINTSUGI_TRY_ASSIGN(const JobConfig job, parse_job(in.getJobFile().cStr(), "the job as sent by the supervisor"));
    KINTSUGI_TRY_ASSIGN(const Plan plan, read_plan(in.getPlan()));
    const std::uint64_t lent = most_lent_messages(plan, ModelLayout(job.model), job);
    shm::RingShape shape;
    shape.ranks = static_cast<std::uint32_t>(ranks_.size());
    shape.slots = std::max<std::uint32_t>(shape.slots, static_cast<std::uint32_t>(std::bit_ceil(lent)));
    KINTSUGI_TRY_ASSIGN(ring_, shm::create_ring_segment(shape));
    return {};
  }

  void on_rank_frame(const FromRank& m) {
    if (m.message.which() != schemas::Message::NEED_SEGMENTS) {
      send(owner_, UpFrame{std::make_shared<transport::Frame>(m.message.copy_frame())});
      return;
    }
    Result<void> outcome;
    const Result<void> read = guarded([&] { outcome = make_segments(m.rank, m.message.get().getNeedSegments()); });
    if (!read) outcome = read;
    if (!outcome) fail(m.rank, outcome.error());
  }

  Result<void> make_segments(RankId rank, schemas::NeedSegments::Reader need) {
    const auto at = ranks_.find(rank);
    if (at == ranks_.end() || !ring_.valid()) return Error{ErrorAction::end_generation, "memory asked for out of turn"};
    KINTSUGI_TRY_ASSIGN(at->second.arena, shm::create_shared_memory("kintsugi-arena", need.getArenaBytes()));
    KINTSUGI_TRY_ASSIGN(at->second.state, shm::create_shared_memory("kintsugi-state", need.getStateBytes()));
    at->second.arena_bytes = need.getArenaBytes();
    for (const auto& [r, local] : ranks_) {
      if (!local.arena.valid()) return {};
    }
    for (auto& [r, local] : ranks_) send_segments(local);
    return {};
  }

  static FileDescriptor duplicate(const FileDescriptor& fd) {
    FileDescriptor copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    KINTSUGI_ASSERT_MSG(copy.valid(), "out of descriptors");
    return copy;
  }

  // In parts of at most kMaxFrameDescriptors descriptors.
  void send_segments(Local& to) {
    auto next = ranks_.begin();
    bool leads = true;
    while (next != ranks_.end()) {
      std::vector<FileDescriptor> descriptors;
      std::vector<std::uint32_t> arenas;
      if (leads) {
        descriptors.push_back(duplicate(ring_));
        descriptors.push_back(duplicate(to.state));
      }
      for (; next != ranks_.end() && descriptors.size() < transport::kMaxFrameDescriptors; ++next) {
        descriptors.push_back(duplicate(next->second.arena));
        arenas.push_back(next->first.value);
      }
      to_rank(to, make_frame([&](schemas::Message::Builder m) {
                auto segments = m.initSegments();
                auto ranks = segments.initRanks(static_cast<unsigned>(ranks_.size()));
                unsigned i = 0;
                for (const auto& [r, local] : ranks_) ranks.set(i++, r.value);
                segments.setLeads(leads);
                auto list = segments.initArenas(static_cast<unsigned>(arenas.size()));
                for (unsigned a = 0; a < list.size(); ++a) list.set(a, arenas[a]);
              }),
              std::move(descriptors));
      leads = false;
    }
  }

  void fail(RankId rank, const Error& error) {
    send(owner_, UpFrame{std::make_shared<transport::Frame>(make_frame([&](schemas::Message::Builder m) {
           auto failed = m.initFailed();
           failed.setJob(job_.value);
           failed.setRank(rank.value);
           failed.setAction(static_cast<std::uint8_t>(error.action));
           failed.setMessage(error.message);
         }))});
  }

  void on_gone(const RankGone& m) {
    ranks_.at(m.rank).supervisor = nullptr;
    send(owner_, UpFrame{std::make_shared<transport::Frame>(make_frame([&](schemas::Message::Builder out) {
           auto down = out.initRankDown();
           down.setJob(job_.value);
           down.setRank(m.rank.value);
           down.setIncarnation(m.incarnation.value);
           down.setWhy(m.why);
           down.setExpected(m.expected);
         }))});
    for (const auto& [rank, local] : ranks_) {
      if (local.supervisor) return;
    }
    send(owner_, NodeJobEnded{job_});
    quit();
  }

  NodeServices& services_;
  const ControlMessage start_;
  caf::actor owner_;
  JobId job_;
  FileDescriptor ring_;
  std::map<RankId, Local> ranks_;
};

}  // namespace

caf::actor spawn_node_job(caf::actor_system& system, NodeServices& services, const ControlMessage& start_ranks,
                          caf::actor owner) {
  return system.spawn<NodeJob>(std::ref(services), start_ranks, std::move(owner));
}

}  // namespace kintsugi::actors
