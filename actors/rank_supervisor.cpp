#include "actors/rank_supervisor.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <caf/send.hpp>

#include <csignal>
#include <utility>

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

struct HeldRank {
  NodeServices& services;
  const RankStart start;
  caf::actor owner;
  bool started = false;
  std::shared_ptr<transport::Link> link = nullptr;
  pid_t pid = 0;
  bool stopping = false;
  bool killed = false;  // here
  std::string link_lost = {};
  std::string kill_reason = {};
};

class RankSupervisor final : public Body {
 public:
  RankSupervisor(Life life, HeldRank& held) : Body(std::move(life)), held_(held) {}

  caf::behavior make_behavior() override {
    if (!std::exchange(held_.started, true)) {
      if (const Result<void> started = start_process(); !started)
        gone("could not start: " + started.error().message, false);
    } else if (held_.pid == 0) {
      gone("could not start: " + life().before->why, false);
    }
    return {
        [this](const ToRank& m) { to_rank(m); },
        [this](const StopRank& m) { stop(m.why); },
        [this](const KillRank& m) {
          held_.link_lost = m.why;
          kill();
        },
        [this](const SignalRank& m) {
          if (held_.pid != 0) held_.services.processes.signal(held_.pid, m.number);
        },
        [this](const LinkFrame& m) {
          send(held_.owner, FromRank{held_.start.rank, m.message});
        },
        [](const LinkPing& m) { m.link->pong(m.id); },
        [this](const LinkDown& m) { on_link_down(m.why); },
        [this](const ProcessEnded& m) {
          // Told to stop, it exits by itself or is killed here; any other end is an end of its own.
          const bool expected = held_.stopping && (!m.end.signalled || held_.killed);
          gone(held_.kill_reason.empty() ? m.end.text() : held_.kill_reason, expected);
        },
        [this](const KillNow&) { kill(); },
    };
  }

  void on_end() override {
    if (held_.link) held_.link->close("its supervisor ended");
    if (held_.pid != 0) held_.services.processes.signal(held_.pid, SIGKILL);
    held_.link = nullptr;
    held_.owner = nullptr;
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
                         "--job",         number(held_.start.job.value),
                         "--rank",        number(held_.start.rank.value),
                         "--incarnation", number(held_.start.incarnation.value),
                         "--threads",     number(held_.start.threads)};
    if (held_.start.ucx_only) request.arguments.emplace_back("--ucx-only");
    if (!held_.services.interface.empty()) {
      request.arguments.emplace_back("--interface");
      request.arguments.push_back(held_.services.interface);
    }
    request.descriptors = {theirs.get()};
    const caf::actor shell = self();
    KINTSUGI_TRY_ASSIGN(held_.pid, held_.services.processes.spawn(std::move(request), [shell](const ProcessEnd& e) {
      caf::anon_send(shell, ProcessEnded{e});
    }));
    // Until it is up, its end and the job's deadline for new ranks say enough.
    transport::LinkOptions options = link_options();
    options.first_answer = kStartTime;
    const std::string peer = fmt::format("rank {}", held_.start.rank.value);
    KINTSUGI_TRY_ASSIGN(held_.link,
                        held_.services.links.adopt_unix(std::move(ours), {peer, {}}, options, callbacks_to(shell)));
    return {};
  }

  void to_rank(const ToRank& m) {
    if (!held_.link) return;
    std::vector<FileDescriptor> descriptors;
    if (m.descriptors) descriptors = std::move(*m.descriptors);
    if (const Result<void> sent = held_.link->send(std::move(*m.frame), std::move(descriptors)); !sent) {
      held_.link->close(sent.error().message);
    }
  }

  void stop(const std::string& why) {
    if (held_.stopping || held_.pid == 0) return;
    held_.stopping = true;
    to_rank({std::make_shared<transport::Frame>(make_frame([&](schemas::Message::Builder m) {
               auto out = m.initStop();
               out.setJob(held_.start.job.value);
               out.setWhy(why);
             })),
             nullptr});
    send_self(kStopGrace, KillNow{});
  }

  // A process whose link is down is of no use, whatever it still does. Its own end also closes the link and explains
  // more, so that gets a moment to arrive before the process is killed.
  void on_link_down(const Error& why) {
    held_.link = nullptr;
    if (held_.pid == 0 || held_.stopping) return;
    held_.link_lost = why.message;
    send_self(kLastWords, KillNow{});
  }

  void kill() {
    if (held_.pid == 0) return;
    if (!held_.stopping) held_.kill_reason = "was killed by its node: " + held_.link_lost;
    held_.killed = true;
    held_.services.processes.signal(held_.pid, SIGKILL);
  }

  void gone(const std::string& why, bool expected) {
    held_.pid = 0;
    held_.services.logger.info("a rank process ended",
                               {{"rank", held_.start.rank.value}, {"why", why}, {"expected", expected}});
    send(held_.owner, RankGone{held_.start.rank, held_.start.incarnation, why, expected});
    quit();
  }

  HeldRank& held_;
};

}  // namespace

caf::actor spawn_rank_supervisor(Place place, NodeServices& services, const RankStart& start) {
  auto held = std::shared_ptr<HeldRank>(new HeldRank{services, start, place.parent});
  return spawn_supervised(std::move(place), bodies_of<RankSupervisor>(std::move(held)));
}

}  // namespace kintsugi::actors
