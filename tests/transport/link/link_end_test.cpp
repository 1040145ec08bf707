// How a link ends: once, soon, with a reason, and with nothing left open.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

#include "base/clock.hpp"
#include "tests/transport/link/link_harness.hpp"

namespace kintsugi::transport {
namespace {

using testing::HasSubstr;

TEST(LinkEnd, a_peer_that_closes_in_the_middle_of_a_frame_gives_no_frame) {
  auto [x, y] = unix_pair();
  Inbox inbox;
  LinkService service{Logger()};
  const auto link = service.adopt_unix(std::move(x), {"torn", {}}, calm(), inbox.callbacks());
  const FrameHeaderBytes header = encode_frame_header({FrameKind::message, 0, 64});
  ASSERT_EQ(8, ::write(y.get(), header.data(), header.size()));
  ASSERT_EQ(8, ::write(y.get(), header.data(), header.size()));
  y.reset();
  EXPECT_THAT(inbox.wait_down().message, HasSubstr("in the middle of a frame"));
  EXPECT_EQ(inbox.frame_count(), 0u);
  service.stop();
  EXPECT_EQ(inbox.downs(), 1u);
}

TEST(LinkEnd, descriptors_that_were_announced_and_not_brought_end_the_link) {
  auto [x, y] = unix_pair();
  Inbox inbox;
  LinkService service{Logger()};
  const auto link = service.adopt_unix(std::move(x), {"liar", {}}, calm(), inbox.callbacks());
  const FrameHeaderBytes header = encode_frame_header({FrameKind::message, 2, 8});
  ASSERT_EQ(8, ::write(y.get(), header.data(), header.size()));
  ASSERT_EQ(8, ::write(y.get(), header.data(), header.size()));
  EXPECT_THAT(inbox.wait_down().message, HasSubstr("announced 2 file descriptors and brought 0"));
  service.stop();
}

TEST(LinkEnd, close_lets_queued_frames_leave_first) {
  Supervisor supervisor;
  Inbox inbox;
  LinkService service{Logger()};
  LinkOptions patient = calm();
  patient.linger = kPatience;
  const auto link = std::move(service.dial_and_wait(supervisor.dial_request(inbox, patient))).value();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(link->send(frame_of(1000)).ok());
  link->close("work done");
  EXPECT_TRUE(supervisor.inbox.wait_frames(100));
  const Error why = inbox.wait_down();
  EXPECT_EQ(why.action, ErrorAction::cancelled);
  EXPECT_EQ(why.message, "work done");
  EXPECT_EQ(supervisor.inbox.wait_down().action, ErrorAction::fail_link);
  EXPECT_FALSE(link->is_up());
  EXPECT_THAT(link->send(frame_of(1)).error().message, HasSubstr("work done"));
}

// A pong to a peer that has closed its socket is answered with a reset, and what that peer had yet to transmit is lost.
TEST(LinkEnd, frames_before_a_close_survive_a_pong_that_comes_after_it) {
  const Identity identity = make_identity();
  std::promise<void> closed;
  Inbox inbox, listener_inbox;
  LinkService listener{Logger()}, dialer{Logger()};
  const auto address = listener.listen({"127.0.0.1", 0, identity, {}, calm(), [&](const std::shared_ptr<Link>&) {
                                          LinkCallbacks callbacks = listener_inbox.callbacks();
                                          callbacks.on_ping = [&](Link& link, std::uint64_t id) {
                                            if (id == 1) closed.get_future().wait();
                                            link.pong(id);
                                          };
                                          return callbacks;
                                        }});
  ASSERT_TRUE(address.ok());
  LinkOptions patient = calm();
  patient.linger = kPatience;
  const auto link =
      std::move(dialer.dial_and_wait({{address->text()}, identity.token, {}, kPatience, patient, inbox.callbacks()}))
          .value();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(link->send(frame_of(1000)).ok());
  link->close("work done");
  const Instant deadline = SteadyClock().now() + kPatience;
  while (link->queued_bytes() > 0 && SteadyClock().now() < deadline) std::this_thread::yield();
  closed.set_value();
  EXPECT_TRUE(listener_inbox.wait_frames(100));
  EXPECT_EQ(inbox.wait_down().message, "work done");
  listener.stop();
  dialer.stop();
}

// Forks before any thread exists; the child is killed, so nothing it holds says goodbye.
template <class Child, class Parent>
void with_child_that_is_killed(Child&& child, Parent&& parent) {
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    child();
    ::_exit(0);
  }
  parent([pid] { ::kill(pid, SIGKILL); });
  ::waitpid(pid, nullptr, 0);
}

// The fastest of up to five kills. A loaded machine may take its time to tear a process down, once or twice; without
// the reset as evidence every kill would take the ping deadline, 20 s.
template <class Kill>
void expect_down_within_50_ms(Kill&& kill_and_measure_ms) {
  std::int64_t fastest_ms = INT64_MAX;
  for (int i = 0; i < 5 && fastest_ms >= 50; ++i) fastest_ms = std::min(fastest_ms, kill_and_measure_ms());
  EXPECT_LT(fastest_ms, 50);
}

std::int64_t ms_from_kill_to_down_over_unix() {
  std::int64_t ms = INT64_MAX;
  auto [x, y] = unix_pair();
  with_child_that_is_killed(
      [&] {
        x.reset();
        Inbox inbox;
        LinkService service{Logger()};
        const auto link = service.adopt_unix(std::move(y), {"parent", {}}, calm(), inbox.callbacks());
        static_cast<void>((*link)->send(frame_of(1)));
        ::pause();
      },
      [&](auto kill_child) {
        y.reset();
        Inbox inbox;
        LinkService service{Logger()};
        const auto link = service.adopt_unix(std::move(x), {"child", {}}, calm(), inbox.callbacks());
        ASSERT_TRUE(inbox.wait_frames(1));
        const Instant killed = SteadyClock().now();
        kill_child();
        EXPECT_EQ(inbox.wait_down().action, ErrorAction::fail_link);
        ms = (SteadyClock().now() - killed).ms();
        service.stop();
      });
  return ms;
}

std::int64_t ms_from_kill_to_down_over_tls() {
  std::int64_t ms = INT64_MAX;
  int ends[2];
  EXPECT_EQ(0, ::pipe2(ends, O_CLOEXEC));
  const Identity identity = make_identity();
  with_child_that_is_killed(
      [&] {
        std::uint16_t port = 0;
        if (::read(ends[0], &port, sizeof(port)) != sizeof(port)) ::_exit(1);
        Inbox inbox;
        LinkService service{Logger()};
        const auto link = service.dial_and_wait(
            {{"127.0.0.1:" + std::to_string(port)}, identity.token, {}, kPatience, calm(), inbox.callbacks()});
        if (link.ok()) static_cast<void>((*link)->send(frame_of(1)));
        ::pause();
      },
      [&](auto kill_child) {
        Inbox inbox;
        LinkService service{Logger()};
        const auto address = service.listen(
            {"127.0.0.1", 0, identity, {}, calm(), [&](const std::shared_ptr<Link>&) { return inbox.callbacks(); }});
        ASSERT_TRUE(address.ok());
        ASSERT_EQ(ssize_t{sizeof(std::uint16_t)}, ::write(ends[1], &address->port, sizeof(std::uint16_t)));
        ASSERT_TRUE(inbox.wait_frames(1));
        const Instant killed = SteadyClock().now();
        kill_child();
        EXPECT_EQ(inbox.wait_down().action, ErrorAction::fail_link);
        ms = (SteadyClock().now() - killed).ms();
        service.stop();
      });
  ::close(ends[0]);
  ::close(ends[1]);
  return ms;
}

TEST(LinkEnd, a_killed_process_at_the_end_of_a_unix_socket_is_down_within_50_ms) {
  expect_down_within_50_ms(ms_from_kill_to_down_over_unix);
}

TEST(LinkEnd, a_killed_process_at_the_end_of_tls_is_down_within_50_ms) {
  expect_down_within_50_ms(ms_from_kill_to_down_over_tls);
}

TEST(LinkEnd, stop_ends_live_links_in_bounded_time_and_each_is_told_once) {
  LinkOptions options = calm();
  options.linger = milliseconds(100);
  options.queue_cap_bytes = kMiB;
  std::vector<Inbox> inboxes(20);
  std::vector<FileDescriptor> silent;
  LinkService service{Logger()};
  for (Inbox& inbox : inboxes) {
    auto [x, y] = unix_pair();
    silent.push_back(std::move(y));
    const auto link = std::move(service.adopt_unix(std::move(x), {"silent", {}}, options, inbox.callbacks())).value();
    while (link->send(frame_of(8192)).ok()) {
    }
  }
  const Instant start = SteadyClock().now();
  service.stop();
  EXPECT_LT((SteadyClock().now() - start).ms(), 1000);
  for (Inbox& inbox : inboxes) {
    EXPECT_EQ(inbox.downs(), 1u);
    EXPECT_EQ(inbox.wait_down().action, ErrorAction::cancelled);
  }
}

TEST(LinkEnd, a_link_may_outlive_its_service) {
  std::shared_ptr<Link> kept;
  {
    auto [x, y] = unix_pair();
    LinkService service{Logger()};
    kept = std::move(service.adopt_unix(std::move(x), {"gone", {}}, calm(), {})).value();
  }
  EXPECT_FALSE(kept->is_up());
  EXPECT_FALSE(kept->send(frame_of(1)).ok());
  kept->pong(1);
  kept->close("again");
}

TEST(LinkEnd, a_callback_may_own_its_link) {
  std::weak_ptr<Link> weak;
  {
    auto [x, y] = unix_pair();
    LinkService service{Logger()};
    const auto owned = std::make_shared<std::shared_ptr<Link>>();
    LinkCallbacks callbacks;
    callbacks.on_down = [owned](Link&, const Error&) {};
    *owned = std::move(service.adopt_unix(std::move(x), {"self", {}}, calm(), std::move(callbacks))).value();
    weak = *owned;
    service.stop();
    owned->reset();
  }
  EXPECT_TRUE(weak.expired());
}

TEST(LinkEnd, links_strangers_and_failed_dials_leave_no_descriptor_open) {
  const std::size_t before = open_descriptors();
  for (int round = 0; round < 5; ++round) {
    Supervisor supervisor;
    Inbox inbox, refused_inbox;
    LinkService service{Logger()};
    const auto link = service.dial_and_wait(supervisor.dial_request(inbox));
    ASSERT_TRUE(link.ok());
    DialRequest wrong = supervisor.dial_request(refused_inbox);
    wrong.token.secret[0] ^= std::byte{1};
    ASSERT_FALSE(service.dial_and_wait(std::move(wrong)).ok());
    const FileDescriptor stranger = raw_connection(supervisor.address.port);
    ASSERT_TRUE((*link)->send(frame_of(1)).ok());
    ASSERT_TRUE(supervisor.inbox.wait_frames(1));
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(LinkEnd, no_descriptor_of_a_service_is_inherited) {
  std::vector<int> before;
  for (int fd = 0; fd < 256; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) before.push_back(fd);
  }
  Supervisor supervisor;
  Inbox inbox;
  LinkService service{Logger()};
  ASSERT_TRUE(service.dial_and_wait(supervisor.dial_request(inbox)).ok());
  for (int fd = 0; fd < 256; ++fd) {
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags < 0 || std::find(before.begin(), before.end(), fd) != before.end()) continue;
    EXPECT_NE(0, flags & FD_CLOEXEC) << "descriptor " << fd;
  }
}

}  // namespace
}  // namespace kintsugi::transport
