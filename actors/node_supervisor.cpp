#include "actors/node_supervisor.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <caf/send.hpp>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <map>
#include <thread>

#include "actors/cluster_frames.hpp"
#include "actors/injection.hpp"
#include "actors/mirrors.hpp"
#include "actors/node_job.hpp"
#include "base/tell.hpp"
#include "engine/control/allegiance.hpp"
#include "kernels/cpu/cpu_device.hpp"

namespace kintsugi::actors {

namespace {

constexpr Duration kStoppedParent = seconds(24 * 3600);

struct NodeGiveUp {};
struct NodeRedial {};
struct DialFailed {
  Error why;
};

}  // namespace

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::NodeGiveUp)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::NodeRedial)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::DialFailed)

namespace kintsugi::actors {

namespace {

// How long rank processes may take to end before the node leaves without them; they are killed with it.
constexpr Duration kLeaveGrace = milliseconds(1'500);

// Between attempts to find a lost supervisor, and the longest that one may take.
constexpr Duration kRedialPause = milliseconds(250);
constexpr Duration kRedialDeadline = seconds(3);

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

// Outlives an incarnation: a link that ended would be this node's loss, and its jobs' memory is theirs.
struct HeldNode {
  const NodeParts parts;
  bool dialed = false;
  std::shared_ptr<transport::Link> link = nullptr;
  Allegiance allegiance = {};
  std::string refused = {};                 // the last supervisor that was, in words
  std::vector<std::string> addresses = {};  // the next to be dialed first
  JournalCopy journal_copy = {};
  std::map<JobId, caf::actor> jobs = {};
  bool parked = false;  // the limit has passed, and it was told
  bool afresh = false;  // a hello waits for the end of jobs
  std::optional<NodeExit> ending = std::nullopt;
};

class NodeSupervisor final : public Body {
 public:
  NodeSupervisor(Life life, HeldNode& held) : Body(std::move(life)), held_(held) {}

  caf::behavior make_behavior() override {
    if (!std::exchange(held_.dialed, true)) dial(held_.parts.options.join_deadline);
    return {
        [this](const LinkUp& m) { on_link(m.link); },
        [this](const DialFailed& m) { on_dial_failed(m.why); },
        [this](const NodeRedial&) { dial_again(); },
        [this](const LinkFrame& m) {
          if (m.link == held_.link) on_frame(m.message);
        },
        [](const LinkPing& m) { m.link->pong(m.id); },
        [this](const LinkDown& m) {
          if (m.link == held_.link) on_link_lost(m.why.message);
        },
        // Without a supervisor nobody is told: what still matters is restated to the next one.
        [this](const UpFrame& m) {
          if (held_.allegiance.is_welcome()) to_supervisor(std::move(*m.frame));
        },
        [this](const OrphanLimit& m) { held_.allegiance.set_limit(m.job, m.limit); },
        [this](const NodeJobEnded& m) { on_job_ended(m.job); },
        [this](const NodeEnd& m) { end(m.exit); },
        [this](const NodeGiveUp&) { leave(); },
        [this](const ActorsChanged&) { tell_actors(); },
    };
  }

  void on_end() override {
    held_.jobs.clear();
    held_.link = nullptr;
  }

 private:
  // --- the supervisor -----------------------------------------------------------------------------------------------
  void dial(Duration deadline) {
    const NodeProcessOptions& o = held_.parts.options;
    if (held_.addresses.empty()) held_.addresses = o.addresses;
    const caf::actor shell = self();
    transport::LinkOptions pings = link_options();
    // Its parent's end is this process's. A parent that was stopped, by a shell's job control perhaps, goes on later.
    if (o.embedded) pings.ping_deadline = pings.first_answer = kStoppedParent;
    held_.parts.services.links.dial({held_.addresses,
                                     o.token,
                                     {transport::LinkRole::node, held_.parts.incarnation, host_name()},
                                     deadline,
                                     pings,
                                     callbacks_to(shell)},
                                    [shell](const Result<std::shared_ptr<transport::Link>>& link) {
                                      if (link)
                                        caf::anon_send(shell, LinkUp{*link});
                                      else
                                        caf::anon_send(shell, DialFailed{link.error()});
                                    });
  }

  void on_link(const std::shared_ptr<transport::Link>& link) {
    held_.link = link;
    if (held_.ending) return link->close(held_.ending->why);
    if (held_.allegiance.was_given_up_by(link->peer().hello.incarnation)) start_afresh();
    if (!held_.afresh) say_hello();
  }

  void on_dial_failed(const Error& why) {
    if (held_.ending) return;
    if (!held_.allegiance.has_served()) return end({3, why.message});
    send_self(kRedialPause, NodeRedial{});
  }

  void dial_again() {
    if (held_.ending) return;
    const Duration left = held_.allegiance.time_left(clock_.now());
    if (left <= Duration{} && held_.jobs.empty()) return end({1, held_.allegiance.last_words()});
    if (left <= Duration{} && !std::exchange(held_.parked, true)) {
      tell(
          "kintsugi join: {}; its ranks are parked with all they hold, and go on once there is a supervisor; to give "
          "them up, end this process\n",
          held_.allegiance.last_words());
    }
    dial(std::min(held_.parked ? kRedialDeadline : left,
                  kRedialDeadline * static_cast<std::int64_t>(held_.addresses.size())));
  }

  void on_link_lost(const std::string& why) {
    held_.link = nullptr;
    if (held_.ending) return;
    if (held_.parts.options.embedded || !held_.allegiance.has_served())
      return end({1, "the supervisor is lost: " + why});
    if (held_.allegiance.lose(why, clock_.now())) {
      tell("kintsugi join: the supervisor is lost: {}; {}it is dialed again for {} s\n", why,
           held_.jobs.empty() ? "" : "training goes on, and ", held_.allegiance.limit().ns / seconds(1).ns);
      const Instant park_at = clock_.now() + held_.allegiance.time_left(clock_.now());
      for (const auto& [job, actor] : held_.jobs) send(actor, SupervisionChanged{{true, park_at}});
    }
    send_self(kRedialPause, NodeRedial{});
  }

  void on_welcome(schemas::Welcome::Reader in) {
    const Supervisor who{in.getClusterId(), in.getEpoch(), held_.link->peer().hello.incarnation};
    const bool again = held_.allegiance.has_served();
    const Result<void> served = held_.allegiance.serve(who, {in.getNode()});
    if (!served) {
      if (served.error().action == ErrorAction::retry) start_afresh();  // under another number
      return turn_away(served.error().message);
    }
    held_.refused.clear();
    if (!held_.parts.options.embedded && again) {
      tell("the supervisor is back (epoch {}); this is node {}\n", in.getEpoch(), in.getNode());
    } else if (!held_.parts.options.embedded) {
      tell("joined as node {} with {} slots\n", in.getNode(), held_.parts.options.slots);
    }
    tell_actors();
    held_.parked = false;
    for (const auto& [job, actor] : held_.jobs) {
      send(actor, SupervisionChanged{});
      send(actor, Restate{});
    }
  }

  void tell_actors() {
    if (!held_.allegiance.is_welcome()) return;
    to_supervisor(make_frame([&](schemas::Message::Builder m) {
      write_actors(held_.parts.services.tree, std::nullopt, m.initProcessActors());
    }));
  }

  // The job has a supervisor that knows of nothing. Where nothing of the job is, this is all there is to say.
  void restate(JobId job) {
    if (const auto at = held_.jobs.find(job); at != held_.jobs.end()) return send(at->second, Restate{});
    to_supervisor(make_frame([&](schemas::Message::Builder m) { m.initJobState().setJob(job.value); }));
  }

  // From a supervisor that must not be served. The right one may be further down the list.
  void turn_away(const std::string& why) {
    if (why != held_.refused) tell("kintsugi join: {}\n", why);
    held_.refused = why;
    std::rotate(held_.addresses.begin(), held_.addresses.begin() + 1, held_.addresses.end());
    held_.link->close(why);
  }

  // A supervisor that took this node for lost has replaced its ranks: it comes back empty, as a new member.
  void start_afresh() {
    held_.allegiance.forget_number();
    held_.afresh = !held_.jobs.empty();
    stop_jobs("its node was taken for lost");
  }

  void on_job_ended(JobId job) {
    held_.jobs.erase(job);
    held_.allegiance.forget_limit(job);
    if (!held_.jobs.empty()) return;
    if (held_.ending) return leave();
    if (std::exchange(held_.afresh, false) && held_.link) say_hello();
  }

  void say_hello() {
    const NodeProcessOptions& o = held_.parts.options;
    to_supervisor(make_frame([&](schemas::Message::Builder m) {
      auto hello = m.initNodeHello();
      hello.setHostname(host_name());
      hello.setSlots(o.slots);
      hello.setCores(std::thread::hardware_concurrency());
      hello.setMemoryBytes(static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                           static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
      hello.setPid(static_cast<std::uint32_t>(::getpid()));
      hello.setIncarnation(held_.parts.incarnation.value);
      hello.setKernelVariant(kernels::cpu::cpu_kernel_variant());
      hello.setVersion(o.version);
      hello.setFormerNode(held_.allegiance.number().value);
      auto jobs = hello.initJobs(static_cast<unsigned>(held_.jobs.size()));
      unsigned j = 0;
      for (const auto& [job, actor] : held_.jobs) jobs.set(j++, job.value);
      if (const std::optional<Supervisor>& served = held_.allegiance.served()) {
        hello.setClusterId(served->cluster_id);
        hello.setServedEpoch(served->epoch);
        hello.setServedIncarnation(served->incarnation.value);
        if (held_.journal_copy.cluster_id() == served->cluster_id) {
          hello.setCopyEpoch(held_.journal_copy.stamp().epoch);
          hello.setCopyUpTo(held_.journal_copy.stamp().up_to);
        }
      }
      auto labels = hello.initLabels(static_cast<unsigned>(o.labels.size()));
      for (unsigned i = 0; i < labels.size(); ++i) labels.set(i, o.labels[i]);
    }));
  }

  void to_supervisor(transport::Frame frame) {
    if (!held_.link) return;
    if (const Result<void> sent = held_.link->send(std::move(frame)); !sent) held_.link->close(sent.error().message);
  }

  void on_frame(const ControlMessage& message) {
    const Result<void> read = guarded([&] {
      const schemas::Message::Reader in = message.get();
      switch (in.which()) {
        case schemas::Message::WELCOME: on_welcome(in.getWelcome()); break;
        case schemas::Message::START_RANKS: {
          const JobId job{in.getStartRanks().getJob()};
          if (held_.ending) break;
          if (!held_.jobs.contains(job)) held_.jobs[job] = spawn_node_job(place("node_job"), held_.parts.services, job);
          to_job(job, message);
          break;
        }
        case schemas::Message::INJECT: inject(in.getInject(), message); break;
        case schemas::Message::FENCE: to_job({in.getFence().getJob()}, message); break;
        case schemas::Message::INTEND: to_job({in.getIntend().getJob()}, message); break;
        case schemas::Message::KILL_RANK: to_job({in.getKillRank().getJob()}, message); break;
        case schemas::Message::PREPARE: to_job({in.getPrepare().getJob()}, message); break;
        case schemas::Message::RESUME: to_job({in.getResume().getJob()}, message); break;
        case schemas::Message::SAVE: to_job({in.getSave().getJob()}, message); break;
        case schemas::Message::STEPS_WANTED: to_job({in.getStepsWanted().getJob()}, message); break;
        case schemas::Message::STOP: to_job({in.getStop().getJob()}, message); break;
        case schemas::Message::RESTATE: restate({in.getRestate().getJob()}); break;
        case schemas::Message::LEAVE: end({0, in.getLeave().cStr()}); break;
        case schemas::Message::REFUSED: on_refused(in.getRefused().getMessage().cStr()); break;
        case schemas::Message::JOURNAL_PIECE: keep_journal(read_journal_piece(in.getJournalPiece())); break;
        case schemas::Message::JOURNAL_WANTED: hand_journal_over(); break;
        default: held_.parts.services.logger.warning("a message that no node understands"); break;
      }
    });
    if (!read && held_.link) held_.link->close(read.error().message);
  }

  void on_refused(const std::string& why) {
    if (!held_.allegiance.has_served()) return end({3, "the supervisor refuses this node: " + why});
    turn_away(fmt::format("the supervisor at {} refuses this node: {}", held_.link->peer().address, why));
  }

  // --- the supervisor's journal, for one that takes over ------------------------------------------------------------
  void keep_journal(const JournalPiece& piece) {
    if (!held_.allegiance.is_welcome()) return;
    if (const Result<void> kept = held_.journal_copy.take(piece); !kept) return held_.link->close(kept.error().message);
    if (piece.up_to == 0) return;
    to_supervisor(make_frame([&](schemas::Message::Builder m) { m.setJournalKept(piece.up_to); }));
  }

  // It has proved that it holds the supervisor's key.
  void hand_journal_over() {
    const std::vector<JournalPiece> pieces = journal_pieces(held_.journal_copy.cluster_id(), held_.journal_copy.stamp(),
                                                            compacted(held_.journal_copy.entries()));
    for (const JournalPiece& piece : pieces) to_supervisor(journal_piece_frame(piece));
  }

  void to_job(JobId job, const ControlMessage& message) {
    const auto at = held_.jobs.find(job);
    if (at != held_.jobs.end()) send(at->second, JobFrame{message});
  }

  // On this process, an actor of it, or on a rank of whichever job runs here.
  void inject(schemas::Inject::Reader in, const ControlMessage& message) {
    if (in.getTarget().isActor()) {
      const std::string text = in.getTarget().getActor().cStr();
      const ActorName name = parse_actor(text);
      const ActorTree& tree = held_.parts.services.tree;
      if (!is_in_rank_process(name) && (tree.crash(name.kind) || tree.crash(text))) return;
    }
    if (in.getTarget().isNode()) {
      ::raise(signal_of(in.getFault()));
      return;
    }
    for (const auto& [job, actor] : held_.jobs) send(actor, JobFrame{message});
  }

  void end(const NodeExit& exit) {
    if (held_.ending) return;
    held_.ending = exit;
    if (held_.jobs.empty()) return leave();
    stop_jobs(exit.why);
    send_self(kLeaveGrace, NodeGiveUp{});
  }

  void stop_jobs(const std::string& why) {
    for (const auto& [job, actor] : held_.jobs) {
      send(actor, JobFrame{*ControlMessage::parse(stop_frame(job, why))});
    }
  }

  void leave() {
    if (held_.link) held_.link->close(held_.ending->why);
    held_.parts.on_exit(*held_.ending);
  }

  HeldNode& held_;
  const BootClock clock_;
};

}  // namespace

caf::actor spawn_node_supervisor(caf::actor_system& system, const NodeParts& parts) {
  const auto held = std::shared_ptr<HeldNode>(new HeldNode{parts});
  // Other nodes hold what this one does.
  const auto on_spent = [exit = parts.on_exit](const std::string& why) { exit({1, why}); };
  ActorTree& tree = parts.services.tree;
  caf::actor node =
      spawn_supervised({&system, &tree, "node_supervisor", nullptr, 0, on_spent}, bodies_of<NodeSupervisor>(held));
  tree.watch(node);
  return node;
}

}  // namespace kintsugi::actors
