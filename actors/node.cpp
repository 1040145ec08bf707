#include "actors/node.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include <algorithm>
#include <chrono>
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

struct NodeExit {
  int code = 0;
  std::string why;
};

struct NodeEnd {  // why the node must end
  NodeExit exit;
};
struct NodeGiveUp {};
struct NodeRedial {};
struct DialFailed {
  Error why;
};

struct NodeParts {
  NodeServices& services;
  const NodeProcessOptions& options;
  Incarnation incarnation;
  std::function<void(NodeExit)> on_exit;
};

}  // namespace

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::NodeEnd)
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

class NodeSupervisor final : public caf::event_based_actor {
 public:
  NodeSupervisor(caf::actor_config& config, std::shared_ptr<NodeParts> parts)
      : caf::event_based_actor(config), parts_(*parts) {}

  const char* name() const override { return "node_supervisor"; }

  caf::behavior make_behavior() override {
    dial(parts_.options.join_deadline);
    return {
        [this](const LinkUp& m) { on_link(m.link); },
        [this](const DialFailed& m) { on_dial_failed(m.why); },
        [this](const NodeRedial&) { dial_again(); },
        [this](const LinkFrame& m) {
          if (m.link == link_) on_frame(m.message);
        },
        [](const LinkPing& m) { m.link->pong(m.id); },
        [this](const LinkDown& m) {
          if (m.link == link_) on_link_lost(m.why.message);
        },
        // Without a supervisor nobody is told: what still matters is restated to the next one.
        [this](const UpFrame& m) {
          if (allegiance_.is_welcome()) to_supervisor(std::move(*m.frame));
        },
        [this](const OrphanLimit& m) { allegiance_.set_limit(m.job, m.limit); },
        [this](const NodeJobEnded& m) { on_job_ended(m.job); },
        [this](const NodeEnd& m) { end(m.exit); },
        [this](const NodeGiveUp&) { leave(); },
    };
  }

  void on_exit() override {
    jobs_.clear();
    link_ = nullptr;
  }

 private:
  // --- the supervisor -----------------------------------------------------------------------------------------------
  void dial(Duration deadline) {
    const NodeProcessOptions& o = parts_.options;
    if (addresses_.empty()) addresses_ = o.addresses;
    const caf::actor self = this;
    transport::LinkOptions pings = link_options();
    // Its parent's end is this process's. A parent that was stopped, by a shell's job control perhaps, goes on later.
    if (o.embedded) pings.ping_deadline = pings.first_answer = kStoppedParent;
    parts_.services.links.dial({addresses_,
                                o.token,
                                {transport::LinkRole::node, parts_.incarnation, host_name()},
                                deadline,
                                pings,
                                callbacks_to(self)},
                               [self](const Result<std::shared_ptr<transport::Link>>& link) {
                                 if (link)
                                   caf::anon_send(self, LinkUp{*link});
                                 else
                                   caf::anon_send(self, DialFailed{link.error()});
                               });
  }

  void on_link(const std::shared_ptr<transport::Link>& link) {
    link_ = link;
    if (ending_) return link->close(ending_->why);
    if (allegiance_.was_given_up_by(link->peer().hello.incarnation)) start_afresh();
    if (!afresh_) say_hello();
  }

  void on_dial_failed(const Error& why) {
    if (ending_) return;
    if (!allegiance_.has_served()) return end({3, why.message});
    delayed_send(this, std::chrono::nanoseconds(kRedialPause.ns), NodeRedial{});
  }

  void dial_again() {
    if (ending_) return;
    const Duration left = allegiance_.time_left(clock_.now());
    if (left <= Duration{} && jobs_.empty()) return end({1, allegiance_.last_words()});
    if (left <= Duration{} && !std::exchange(parked_, true)) {
      tell(
          "kintsugi join: {}; its ranks are parked with all they hold, and go on once there is a supervisor; to give "
          "them up, end this process\n",
          allegiance_.last_words());
    }
    dial(std::min(parked_ ? kRedialDeadline : left, kRedialDeadline * static_cast<std::int64_t>(addresses_.size())));
  }

  void on_link_lost(const std::string& why) {
    link_ = nullptr;
    if (ending_) return;
    if (parts_.options.embedded || !allegiance_.has_served()) return end({1, "the supervisor is lost: " + why});
    if (allegiance_.lose(why, clock_.now())) {
      tell("kintsugi join: the supervisor is lost: {}; {}it is dialed again for {} s\n", why,
           jobs_.empty() ? "" : "training goes on, and ", allegiance_.limit().ns / seconds(1).ns);
      const Instant park_at = clock_.now() + allegiance_.time_left(clock_.now());
      for (const auto& [job, actor] : jobs_) send(actor, SupervisionChanged{{true, park_at}});
    }
    delayed_send(this, std::chrono::nanoseconds(kRedialPause.ns), NodeRedial{});
  }

  void on_welcome(schemas::Welcome::Reader in) {
    const Supervisor who{in.getClusterId(), in.getEpoch(), link_->peer().hello.incarnation};
    const bool again = allegiance_.has_served();
    const Result<void> served = allegiance_.serve(who, {in.getNode()});
    if (!served) {
      if (served.error().action == ErrorAction::retry) start_afresh();  // under another number
      return turn_away(served.error().message);
    }
    refused_.clear();
    if (!parts_.options.embedded && again) {
      tell("the supervisor is back (epoch {}); this is node {}\n", in.getEpoch(), in.getNode());
    } else if (!parts_.options.embedded) {
      tell("joined as node {} with {} slots\n", in.getNode(), parts_.options.slots);
    }
    parked_ = false;
    for (const auto& [job, actor] : jobs_) {
      send(actor, SupervisionChanged{});
      send(actor, Restate{});
    }
  }

  // From a supervisor that must not be served. The right one may be further down the list.
  void turn_away(const std::string& why) {
    if (why != refused_) tell("kintsugi join: {}\n", why);
    refused_ = why;
    std::rotate(addresses_.begin(), addresses_.begin() + 1, addresses_.end());
    link_->close(why);
  }

  // A supervisor that took this node for lost has replaced its ranks: it comes back empty, as a new member.
  void start_afresh() {
    allegiance_.forget_number();
    afresh_ = !jobs_.empty();
    stop_jobs("its node was taken for lost");
  }

  void on_job_ended(JobId job) {
    jobs_.erase(job);
    allegiance_.forget_limit(job);
    if (!jobs_.empty()) return;
    if (ending_) return leave();
    if (std::exchange(afresh_, false) && link_) say_hello();
  }

  void say_hello() {
    const NodeProcessOptions& o = parts_.options;
    to_supervisor(make_frame([&](schemas::Message::Builder m) {
      auto hello = m.initNodeHello();
      hello.setHostname(host_name());
      hello.setSlots(o.slots);
      hello.setCores(std::thread::hardware_concurrency());
      hello.setMemoryBytes(static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                           static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
      hello.setPid(static_cast<std::uint32_t>(::getpid()));
      hello.setIncarnation(parts_.incarnation.value);
      hello.setKernelVariant(kernels::cpu::cpu_kernel_variant());
      hello.setVersion(o.version);
      hello.setFormerNode(allegiance_.number().value);
      auto jobs = hello.initJobs(static_cast<unsigned>(jobs_.size()));
      unsigned j = 0;
      for (const auto& [job, actor] : jobs_) jobs.set(j++, job.value);
      if (const std::optional<Supervisor>& served = allegiance_.served()) {
        hello.setClusterId(served->cluster_id);
        hello.setServedEpoch(served->epoch);
        hello.setServedIncarnation(served->incarnation.value);
        if (journal_copy_.cluster_id() == served->cluster_id) {
          hello.setCopyEpoch(journal_copy_.stamp().epoch);
          hello.setCopyUpTo(journal_copy_.stamp().up_to);
        }
      }
      auto labels = hello.initLabels(static_cast<unsigned>(o.labels.size()));
      for (unsigned i = 0; i < labels.size(); ++i) labels.set(i, o.labels[i]);
    }));
  }

  void to_supervisor(transport::Frame frame) {
    if (!link_) return;
    if (const Result<void> sent = link_->send(std::move(frame)); !sent) link_->close(sent.error().message);
  }

  void on_frame(const ControlMessage& message) {
    const Result<void> read = guarded([&] {
      const schemas::Message::Reader in = message.get();
      switch (in.which()) {
        case schemas::Message::WELCOME: on_welcome(in.getWelcome()); break;
        case schemas::Message::START_RANKS: {
          const JobId job{in.getStartRanks().getJob()};
          if (ending_) break;
          if (!jobs_.contains(job)) jobs_[job] = spawn_node_job(system(), parts_.services, job, this);
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
        case schemas::Message::LEAVE: end({0, in.getLeave().cStr()}); break;
        case schemas::Message::REFUSED: on_refused(in.getRefused().getMessage().cStr()); break;
        case schemas::Message::JOURNAL_PIECE: keep_journal(read_journal_piece(in.getJournalPiece())); break;
        case schemas::Message::JOURNAL_WANTED: hand_journal_over(); break;
        default: parts_.services.logger.warning("a message that no node understands"); break;
      }
    });
    if (!read && link_) link_->close(read.error().message);
  }

  void on_refused(const std::string& why) {
    if (!allegiance_.has_served()) return end({3, "the supervisor refuses this node: " + why});
    turn_away(fmt::format("the supervisor at {} refuses this node: {}", link_->peer().address, why));
  }

  // --- the supervisor's journal, for one that takes over ------------------------------------------------------------
  void keep_journal(const JournalPiece& piece) {
    if (!allegiance_.is_welcome()) return;
    if (const Result<void> kept = journal_copy_.take(piece); !kept) return link_->close(kept.error().message);
    if (piece.up_to == 0) return;
    to_supervisor(make_frame([&](schemas::Message::Builder m) { m.setJournalKept(piece.up_to); }));
  }

  // It has proved that it holds the supervisor's key.
  void hand_journal_over() {
    const std::vector<JournalPiece> pieces =
        journal_pieces(journal_copy_.cluster_id(), journal_copy_.stamp(), compacted(journal_copy_.entries()));
    for (const JournalPiece& piece : pieces) to_supervisor(journal_piece_frame(piece));
  }

  void to_job(JobId job, const ControlMessage& message) {
    const auto at = jobs_.find(job);
    if (at != jobs_.end()) send(at->second, JobFrame{message});
  }

  // On this process, or on a rank of whichever job runs here.
  void inject(schemas::Inject::Reader in, const ControlMessage& message) {
    if (in.getTarget().isNode()) {
      ::raise(signal_of(in.getFault()));
      return;
    }
    for (const auto& [job, actor] : jobs_) send(actor, JobFrame{message});
  }

  void end(const NodeExit& exit) {
    if (ending_) return;
    ending_ = exit;
    if (jobs_.empty()) return leave();
    stop_jobs(exit.why);
    delayed_send(this, std::chrono::nanoseconds(kLeaveGrace.ns), NodeGiveUp{});
  }

  void stop_jobs(const std::string& why) {
    for (const auto& [job, actor] : jobs_) {
      send(actor, JobFrame{*ControlMessage::parse(stop_frame(job, why))});
    }
  }

  void leave() {
    if (link_) link_->close(ending_->why);
    parts_.on_exit(*ending_);
  }

  const NodeParts parts_;
  std::shared_ptr<transport::Link> link_;
  Allegiance allegiance_;
  const BootClock clock_;
  std::string refused_;                 // the last supervisor that was, in words
  std::vector<std::string> addresses_;  // the next to be dialed first
  JournalCopy journal_copy_;
  std::map<JobId, caf::actor> jobs_;
  bool parked_ = false;  // the limit has passed, and it was told
  bool afresh_ = false;  // a hello waits for the end of jobs
  std::optional<NodeExit> ending_;
};

}  // namespace

int run_node_process(const NodeProcessOptions& options) {
  // Blocked in every thread made from here on; children start with an empty mask.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);

  const SteadyClock clock;
  ProcessWatcher processes;
  transport::LinkService links(options.logger);
  NodeServices services{processes, links, options.logger, options.interface};
  caf::actor_system_config config = make_system_config();
  caf::actor_system system(config);

  Event done;
  auto exit = std::make_shared<NodeExit>();
  auto parts = std::make_shared<NodeParts>(NodeParts{services, options, {}, [done, exit](NodeExit e) mutable {
                                                       *exit = std::move(e);
                                                       done.signal();
                                                     }});
  parts->incarnation = {static_cast<std::uint64_t>(wall_clock_ns()) ^ static_cast<std::uint64_t>(::getpid()) << 32};
  if (!options.embedded) tell("joining {}\n", fmt::join(options.addresses, ", "));
  const caf::actor node = system.spawn<NodeSupervisor>(parts);
  const FileDescriptor interrupts(::signalfd(-1, &signals, SFD_CLOEXEC));
  std::thread([fd = interrupts.get(), node] {
    signalfd_siginfo info{};
    if (::read(fd, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      caf::anon_send(node, NodeEnd{{130, fmt::format("interrupted by signal {}", info.ssi_signo)}});
    }
  }).detach();

  static_cast<void>(done.wait(kNoDeadline).ok());
  const auto& [code, why] = *exit;
  options.logger.info("the node ends", {{"why", why}, {"exit_code", code}});
  if (code != 0) tell("kintsugi join: {}\n", why);
  links.stop();
  std::fflush(nullptr);
  std::_Exit(code);  // rank processes that are left die with this one
}

}  // namespace kintsugi::actors
