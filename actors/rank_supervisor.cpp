#include "actors/rank_supervisor.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include <chrono>
#include <csignal>

namespace kintsugi::actors {

namespace {
struct ProcessEnded {
  ProcessEnd end;
};
struct KillNow {};
}  // namespace

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::ProcessEnded)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::KillNow)

namespace kintsugi::actors {

namespace {

// Between the end of a link and the kill.
constexpr Duration kLastWords = milliseconds(200);

class RankSupervisor final : public caf::event_based_actor {
 public:
  RankSupervisor(caf::actor_config& config, NodeServices& services, RankStart start, caf::actor owner)
      : caf::event_based_actor(config), services_(services), start_(start), owner_(std::move(owner)) {}

  const char* name() const override { return "rank_supervisor"; }

  caf::behavior make_behavior() override {
    if (const Result<void> started = start_process(); !started)
      gone("could not start: " + started.error().message, false);
    return {
        [this](const ToRank& m) { to_rank(m); },
        [this](const StopRank& m) { stop(m.why); },
        [this](const KillRank& m) {
          link_lost_ = m.why;
          kill();
        },
        [this](const SignalRank& m) {
          if (pid_ != 0) services_.processes.signal(pid_, m.number);
        },
        [this](const LinkFrame& m) {
          send(owner_, FromRank{start_.rank, m.message});
        },
        [](const LinkPing& m) { m.link->pong(m.id); },
        [this](const LinkDown& m) { on_link_down(m.why); },
        [this](const ProcessEnded& m) {
          // Told to stop, it exits by itself or is killed here; any other end is an end of its own.
          const bool expected = stopping_ && (!m.end.signalled || killed_);
          gone(kill_reason_.empty() ? m.end.text() : kill_reason_, expected);
        },
        [this](const KillNow&) { kill(); },
    };
  }

  void on_exit() override {
    if (link_) link_->close("its supervisor ended");
    if (pid_ != 0) services_.processes.signal(pid_, SIGKILL);
    link_ = nullptr;
    owner_ = nullptr;
  }

 private:
  Result<void> start_process() {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
      return Error{ErrorAction::tell_user, errno_message("cannot make", "a socket pair")};
    }
    FileDescriptor ours(pair[0]);
    const FileDescriptor theirs(pair[1]);
    SpawnRequest request;
    const auto number = [](auto n) { return std::to_string(n); };
    request.arguments = {"kintsugi",      "rank",
                         "--socket",      "3",
                         "--job",         number(start_.job.value),
                         "--rank",        number(start_.rank.value),
                         "--incarnation", number(start_.incarnation.value),
                         "--threads",     number(start_.threads)};
    if (start_.ucx_only) request.arguments.emplace_back("--ucx-only");
    if (!services_.interface.empty()) {
      request.arguments.emplace_back("--interface");
      request.arguments.push_back(services_.interface);
    }
    request.descriptors = {theirs.get()};
    const caf::actor self = this;
    KINTSUGI_TRY_ASSIGN(pid_, services_.processes.spawn(std::move(request), [self](const ProcessEnd& e) {
      caf::anon_send(self, ProcessEnded{e});
    }));
    // Until it is up, its end and the job's deadline for new ranks say enough.
    transport::LinkOptions options = link_options();
    options.first_answer = kStartTime;
    const std::string peer = fmt::format("rank {}", start_.rank.value);
    KINTSUGI_TRY_ASSIGN(link_, services_.links.adopt_unix(std::move(ours), {peer, {}}, options, callbacks_to(this)));
    return {};
  }

  void to_rank(const ToRank& m) {
    if (!link_) return;
    std::vector<FileDescriptor> descriptors;
    if (m.descriptors) descriptors = std::move(*m.descriptors);
    if (const Result<void> sent = link_->send(std::move(*m.frame), std::move(descriptors)); !sent) {
      link_->close(sent.error().message);
    }
  }

  void stop(const std::string& why) {
    if (stopping_ || pid_ == 0) return;
    stopping_ = true;
    to_rank({std::make_shared<transport::Frame>(make_frame([&](schemas::Message::Builder m) {
               auto out = m.initStop();
               out.setJob(start_.job.value);
               out.setWhy(why);
             })),
             nullptr});
    delayed_send(this, std::chrono::nanoseconds(kStopGrace.ns), KillNow{});
  }

  // A process whose link is down is of no use, whatever it still does. Its own end also closes the link and explains
  // more, so that gets a moment to arrive before the process is killed.
  void on_link_down(const Error& why) {
    link_ = nullptr;
    if (pid_ == 0 || stopping_) return;
    link_lost_ = why.message;
    delayed_send(this, std::chrono::nanoseconds(kLastWords.ns), KillNow{});
  }

  void kill() {
    if (pid_ == 0) return;
    if (!stopping_) kill_reason_ = "was killed by its node: " + link_lost_;
    killed_ = true;
    services_.processes.signal(pid_, SIGKILL);
  }

  void gone(const std::string& why, bool expected) {
    pid_ = 0;
    services_.logger.info("a rank process ended", {{"rank", start_.rank.value}, {"why", why}, {"expected", expected}});
    send(owner_, RankGone{start_.rank, start_.incarnation, why, expected});
    quit();
  }

  NodeServices& services_;
  const RankStart start_;
  caf::actor owner_;
  std::shared_ptr<transport::Link> link_;
  pid_t pid_ = 0;
  bool stopping_ = false;
  bool killed_ = false;  // here
  std::string link_lost_;
  std::string kill_reason_;
};

}  // namespace

caf::actor spawn_rank_supervisor(caf::actor_system& system, NodeServices& services, const RankStart& start,
                                 caf::actor owner) {
  return system.spawn<RankSupervisor>(std::ref(services), start, std::move(owner));
}

}  // namespace kintsugi::actors
