// What a link that is up does: frames, descriptors, pings, queues.
#include "transport/link/link.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "tests/transport/link/link_harness.hpp"

namespace kintsugi::transport {
namespace {

using testing::HasSubstr;

struct UnixPair {
  explicit UnixPair(LinkOptions a_options = calm(), LinkOptions b_options = calm()) {
    auto [x, y] = unix_pair();
    a = std::move(service_a.adopt_unix(std::move(x), {"rank 0", {}}, a_options, a_inbox.callbacks())).value();
    b = std::move(service_b.adopt_unix(std::move(y), {"node", {}}, b_options, b_inbox.callbacks())).value();
  }
  ~UnixPair() {
    service_a.stop();
    service_b.stop();
  }

  Inbox a_inbox, b_inbox;
  LinkService service_a{Logger()}, service_b{Logger()};
  std::shared_ptr<Link> a, b;
};

void expect_echo_in_order(Link& link, Inbox& inbox) {
  const std::vector<std::size_t> sizes = {1, 3, 2048, 2049, 100'000, 1, 2'097'152, 5};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_TRUE(link.send(frame_of(sizes[i], static_cast<int>(i) + 1)).ok());
  }
  ASSERT_TRUE(inbox.wait_frames(sizes.size()));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(inbox.words(i), sizes[i]);
    EXPECT_EQ(inbox.fill(i), static_cast<int>(i) + 1);
  }
}

TEST(Link, frames_of_any_size_up_to_the_cap_come_back_in_order_over_tls) {
  Supervisor supervisor;
  supervisor.inbox.echo = true;
  Inbox inbox;
  LinkService service{Logger()};
  const auto link = service.dial_and_wait(supervisor.dial_request(inbox));
  ASSERT_TRUE(link.ok()) << link.error().message;
  EXPECT_EQ((*link)->peer().hello.incarnation.value, 77u);
  expect_echo_in_order(**link, inbox);
  EXPECT_EQ(supervisor.inbox.link()->peer().hello.name, "tester");
}

TEST(Link, frames_of_any_size_up_to_the_cap_come_back_in_order_over_a_unix_socket) {
  auto [x, y] = unix_pair();
  Inbox near, far;
  far.echo = true;
  LinkService service{Logger()};
  const auto a = service.adopt_unix(std::move(x), {"far", {}}, calm(), near.callbacks());
  const auto b = service.adopt_unix(std::move(y), {"near", {}}, calm(), far.callbacks());
  ASSERT_TRUE(a.ok() && b.ok());
  expect_echo_in_order(**a, near);
  service.stop();
}

TEST(Link, descriptors_arrive_with_their_own_frame_and_are_close_on_exec) {
  UnixPair pair;
  int ends[2];
  ASSERT_EQ(0, ::pipe2(ends, O_CLOEXEC));
  const FileDescriptor reader(ends[0]);
  std::vector<FileDescriptor> sent;
  for (std::size_t i = 1; i < kMaxFrameDescriptors; ++i) sent.emplace_back(::fcntl(ends[1], F_DUPFD_CLOEXEC, 3));
  sent.emplace_back(ends[1]);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(pair.a->send(frame_of(2, 1)).ok());
  ASSERT_TRUE(pair.a->send(frame_of(50'000, 2), std::move(sent)).ok());
  ASSERT_TRUE(pair.b_inbox.wait_frames(21));
  const std::vector<FileDescriptor> received = pair.b_inbox.take_descriptors();
  ASSERT_EQ(received.size(), kMaxFrameDescriptors);
  EXPECT_NE(0, ::fcntl(received[0].get(), F_GETFD) & FD_CLOEXEC);
  ASSERT_EQ(1, ::write(received[0].get(), "x", 1));
  char got = 0;
  ASSERT_EQ(1, ::read(reader.get(), &got, 1));
  EXPECT_EQ(got, 'x');
}

TEST(Link, descriptors_are_refused_where_they_cannot_go) {
  Supervisor supervisor;
  Inbox inbox;
  LinkService service{Logger()};
  const auto link = std::move(service.dial_and_wait(supervisor.dial_request(inbox))).value();
  std::vector<FileDescriptor> one;
  one.emplace_back(::dup(0));
  EXPECT_THAT(link->send(frame_of(1), std::move(one)).error().message, HasSubstr("another machine"));
  UnixPair pair;
  std::vector<FileDescriptor> nine;
  for (int i = 0; i < 9; ++i) nine.emplace_back(::dup(0));
  EXPECT_THAT(pair.a->send(frame_of(1), std::move(nine)).error().message, HasSubstr("the limit is 8"));
}

TEST(Link, a_frame_over_the_cap_is_not_sent_and_ends_the_link_when_received) {
  LinkOptions small = calm();
  small.frame_cap_bytes = 1024;
  UnixPair pair(calm(), small);
  const Result<void> refused = pair.b->send(frame_of(129));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("the cap of this link is 1024"));
  EXPECT_TRUE(pair.b->is_up());
  ASSERT_TRUE(pair.a->send(frame_of(129)).ok());
  EXPECT_THAT(pair.b_inbox.wait_down().message, HasSubstr("a frame of 1032 bytes, the cap of this link is 1024"));
  EXPECT_EQ(pair.a_inbox.wait_down().action, ErrorAction::fail_link);
  EXPECT_EQ(pair.b_inbox.frame_count(), 0u);
}

TEST(Link, a_slow_reader_meets_a_bounded_queue_and_loses_no_frame) {
  auto [x, y] = unix_pair();
  LinkOptions options = calm();
  options.queue_cap_bytes = 256 * kKiB;
  Inbox inbox, reader;
  LinkService service{Logger()};
  const auto link = std::move(service.adopt_unix(std::move(x), {"slow", {}}, options, inbox.callbacks())).value();
  std::size_t taken = 0;
  Result<void> sent;
  while ((sent = link->send(frame_of(1024, static_cast<int>(taken % 100) + 1))).ok()) {
    ASSERT_LT(++taken, 10'000u);
    EXPECT_LE(link->queued_bytes(), options.queue_cap_bytes);
  }
  EXPECT_EQ(sent.error().action, ErrorAction::retry);
  EXPECT_THAT(sent.error().message, HasSubstr("the queue to slow is full"));
  // The reader wakes up.
  const auto other = service.adopt_unix(std::move(y), {"fast", {}}, calm(), reader.callbacks());
  ASSERT_TRUE(inbox.wait_drained());
  ASSERT_TRUE(link->send(frame_of(1, 101)).ok());
  ASSERT_TRUE(reader.wait_frames(taken + 1));
  for (std::size_t i = 0; i < taken; ++i) ASSERT_EQ(reader.fill(i), static_cast<int>(i % 100) + 1);
  EXPECT_EQ(reader.fill(taken), 101);
  service.stop();
}

TEST(Link, pings_are_answered_and_their_round_trips_reported) {
  UnixPair pair({milliseconds(5), seconds(20)}, {milliseconds(5), seconds(20)});
  EXPECT_TRUE(pair.a_inbox.wait_pongs(3));
  EXPECT_TRUE(pair.b_inbox.wait_pongs(3));
}

TEST(Link, a_stuck_owner_is_noticed_though_its_io_thread_lives) {
  auto [x, y] = unix_pair();
  Inbox watcher, stuck;
  stuck.answers_pings = false;
  LinkService service{Logger()};
  const auto a =
      service.adopt_unix(std::move(x), {"stuck", {}}, {milliseconds(10), milliseconds(60)}, watcher.callbacks());
  const auto b = service.adopt_unix(std::move(y), {"watcher", {}}, calm(), stuck.callbacks());
  const Error why = watcher.wait_down();
  EXPECT_EQ(why.action, ErrorAction::fail_link);
  EXPECT_EQ(why.message, "link to stuck is down: no answer to pings for 60 ms");
  service.stop();
}

// As on a machine that starves it.
TEST(Link, who_was_slow_to_answer_of_late_may_be_silent_for_longer) {
  auto [x, y] = unix_pair();
  Inbox watcher, slow;
  LinkService service{Logger()};
  std::mutex mutex;
  std::condition_variable asked;
  std::optional<std::uint64_t> newest;
  LinkCallbacks callbacks = slow.callbacks();
  callbacks.on_ping = [&](Link&, std::uint64_t id) {
    const std::scoped_lock lock(mutex);
    newest = id;
    asked.notify_all();
  };
  const auto a =
      service.adopt_unix(std::move(x), {"slow", {}}, {milliseconds(20), milliseconds(100)}, watcher.callbacks());
  const auto b = service.adopt_unix(std::move(y), {"watcher", {}}, calm(), callbacks);
  ASSERT_TRUE(a.ok() && b.ok());
  for (int answers = 0; answers < 4; ++answers) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(asked.wait_for(lock, std::chrono::seconds(10), [&] { return newest.has_value(); }));
    const std::uint64_t id = *std::exchange(newest, std::nullopt);
    // Two more pings come meanwhile: this one has waited for 40 ms when it is answered.
    asked.wait_for(lock, std::chrono::milliseconds(40), [] { return false; });
    newest.reset();
    lock.unlock();
    (*b)->pong(id);
  }
  const std::string why = watcher.wait_down().message;
  int silence_ms = 0;
  ASSERT_EQ(std::sscanf(why.c_str(), "link to slow is down: no answer to pings for %d ms", &silence_ms), 1) << why;
  EXPECT_GT(silence_ms, 150);
  EXPECT_LE(silence_ms, 600);
  service.stop();
}

// As a process does that loads its libraries on a busy machine.
TEST(Link, who_has_yet_to_answer_for_the_first_time_may_take_longer_and_only_then) {
  for (const bool answers_once : {false, true}) {
    auto [x, y] = unix_pair();
    Inbox watcher, stuck;
    LinkService service{Logger()};
    LinkOptions options{milliseconds(10), milliseconds(60)};
    options.first_answer = milliseconds(300);
    LinkCallbacks callbacks = stuck.callbacks();
    callbacks.on_ping = [answers_once](Link& link, std::uint64_t id) {
      if (answers_once && id == 1) link.pong(id);
    };
    const auto a = service.adopt_unix(std::move(x), {"stuck", {}}, options, watcher.callbacks());
    const auto b = service.adopt_unix(std::move(y), {"watcher", {}}, calm(), callbacks);
    EXPECT_EQ(watcher.wait_down().message, answers_once ? "link to stuck is down: no answer to pings for 60 ms"
                                                        : "link to stuck is down: no answer to pings for 300 ms");
    service.stop();
  }
}

}  // namespace
}  // namespace kintsugi::transport
