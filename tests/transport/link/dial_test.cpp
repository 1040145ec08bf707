// Going to the supervisor, and what a person is told when it does not work.
#include <unistd.h>

#include <future>

#include <thread>

#include "tests/transport/link/link_harness.hpp"

namespace kintsugi::transport {
namespace {

using testing::HasSubstr;

// A port that nobody listens on: bound, never listening, kept by the caller.
std::pair<FileDescriptor, std::string> dead_address() {
  FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(at);
  EXPECT_EQ(0, ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)));
  EXPECT_EQ(0, ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&at), &bytes));
  return {std::move(fd), "127.0.0.1:" + std::to_string(ntohs(at.sin_port))};
}

TEST(Dial, a_wrong_secret_is_refused_and_says_what_to_do) {
  Supervisor supervisor;
  Inbox inbox;
  LinkService service{Logger()};
  DialRequest request = supervisor.dial_request(inbox);
  request.token.secret[31] ^= std::byte{1};
  const auto link = service.dial_and_wait(std::move(request));
  ASSERT_FALSE(link.ok());
  EXPECT_EQ(link.error().action, ErrorAction::refuse);
  EXPECT_EQ(link.error().message, "the supervisor at " + supervisor.address.text() +
                                      " refused the join token: its secret is not the one of this cluster; get a new "
                                      "one from `kintsugi supervise`");
  // Counted after the answer has left, on the supervisor's own thread.
  const Instant deadline = SteadyClock().now() + seconds(10);
  while (supervisor.service.strangers().refused == 0 && SteadyClock().now() < deadline) std::this_thread::yield();
  EXPECT_EQ(supervisor.service.strangers().refused, 1u);
  EXPECT_EQ(inbox.downs(), 0u);
}

TEST(Dial, a_supervisor_with_another_certificate_is_not_told_anything) {
  Supervisor supervisor;
  Inbox inbox;
  LinkService service{Logger()};
  DialRequest request = supervisor.dial_request(inbox);
  request.token.fingerprint[0] ^= std::byte{1};
  const auto link = service.dial_and_wait(std::move(request));
  ASSERT_FALSE(link.ok());
  EXPECT_EQ(link.error().action, ErrorAction::refuse);
  EXPECT_THAT(link.error().message, HasSubstr("is not the one the join token names"));
}

TEST(Dial, the_list_is_tried_past_dead_and_foreign_addresses) {
  Supervisor foreign, supervisor;
  const auto [kept, dead] = dead_address();
  Inbox inbox;
  LinkService service{Logger()};
  DialRequest request = supervisor.dial_request(inbox);
  request.addresses = {"no-such-host.invalid:1", dead, foreign.address.text(), supervisor.address.text()};
  request.attempt_deadline = milliseconds(500);
  const auto link = service.dial_and_wait(std::move(request));
  ASSERT_TRUE(link.ok()) << link.error().message;
  EXPECT_EQ((*link)->peer().address, supervisor.address.text());
}

TEST(Dial, a_supervisor_that_comes_late_is_found_within_the_deadline) {
  auto [kept, dead] = dead_address();
  const Identity identity = make_identity();
  Inbox inbox, listener_inbox;
  LinkService dialer{Logger()}, listener{Logger()};
  std::promise<Result<std::shared_ptr<Link>>> promise;
  dialer.dial({{dead}, identity.token, {}, kPatience, calm(), inbox.callbacks()},
              [&](Result<std::shared_ptr<Link>> result) { promise.set_value(std::move(result)); });
  const auto port = static_cast<std::uint16_t>(std::stoi(dead.substr(dead.find(':') + 1)));
  kept.reset();
  const auto address = listener.listen({"127.0.0.1", port, identity, {}, calm(), [&](const std::shared_ptr<Link>&) {
                                          return listener_inbox.callbacks();
                                        }});
  ASSERT_TRUE(address.ok()) << address.error().message;
  EXPECT_TRUE(promise.get_future().get().ok());
  listener.stop();
  dialer.stop();
}

TEST(Dial, nobody_there_ends_at_the_deadline_and_names_the_addresses) {
  const auto [kept, dead] = dead_address();
  Inbox inbox;
  LinkService service{Logger()};
  const auto link = service.dial_and_wait({{dead}, {}, {}, milliseconds(150), calm(), inbox.callbacks()});
  ASSERT_FALSE(link.ok());
  EXPECT_EQ(link.error().action, ErrorAction::refuse);
  EXPECT_THAT(link.error().message, HasSubstr("no supervisor answered at " + dead + " within 150 ms"));
  EXPECT_THAT(link.error().message, HasSubstr("Connection refused"));
}

TEST(Dial, a_name_that_no_server_knows_yet_is_asked_for_again_until_the_deadline) {
  Inbox inbox;
  LinkService service{Logger()};
  const Instant began = SteadyClock().now();
  const auto link =
      service.dial_and_wait({{"not-yet.invalid:7700"}, {}, {}, milliseconds(400), calm(), inbox.callbacks()});
  ASSERT_FALSE(link.ok());
  EXPECT_GE(SteadyClock().now() - began, milliseconds(390));
  EXPECT_THAT(link.error().message, HasSubstr("no supervisor answered at not-yet.invalid:7700 within 400 ms"));
}

TEST(Dial, a_host_that_accepts_and_says_nothing_costs_one_attempt) {
  auto [kept, dead] = dead_address();
  ASSERT_EQ(0, ::listen(kept.get(), 1));
  Supervisor supervisor;
  Inbox inbox;
  LinkService service{Logger()};
  DialRequest request = supervisor.dial_request(inbox);
  request.addresses = {dead, supervisor.address.text()};
  request.attempt_deadline = milliseconds(500);
  EXPECT_TRUE(service.dial_and_wait(std::move(request)).ok());
}

TEST(Dial, stop_cancels_a_dial_under_way) {
  const auto [kept, dead] = dead_address();
  Inbox inbox;
  LinkService service{Logger()};
  std::promise<Result<std::shared_ptr<Link>>> promise;
  service.dial({{dead}, {}, {}, kPatience, calm(), inbox.callbacks()},
               [&](Result<std::shared_ptr<Link>> result) { promise.set_value(std::move(result)); });
  service.stop();
  EXPECT_EQ(promise.get_future().get().error().action, ErrorAction::cancelled);
  EXPECT_EQ(service.dial_and_wait({{dead}, {}, {}, kPatience, calm(), {}}).error().action, ErrorAction::cancelled);
}

TEST(Dial, what_is_no_address_is_named) {
  Inbox inbox;
  LinkService service{Logger()};
  for (const char* text : {"host", "host:", ":1", "host:0", "host:65536", "host:1x", "::1:80"}) {
    const auto link = service.dial_and_wait({{text}, {}, {}, kPatience, calm(), inbox.callbacks()});
    ASSERT_FALSE(link.ok());
    EXPECT_EQ(link.error().action, ErrorAction::tell_user);
    EXPECT_THAT(link.error().message, HasSubstr(std::string("`") + text + "` is no address"));
  }
}

TEST(Listen, a_taken_port_is_named_with_what_to_do) {
  Supervisor supervisor;
  LinkService service{Logger()};
  const auto address = service.listen(
      {"127.0.0.1", supervisor.address.port, make_identity(), {}, calm(), [](const std::shared_ptr<Link>&) {
         return LinkCallbacks{};
       }});
  ASSERT_FALSE(address.ok());
  EXPECT_EQ(address.error().action, ErrorAction::tell_user);
  EXPECT_EQ(address.error().message, "cannot listen on " + supervisor.address.text() +
                                         ": another process has this port; stop it, or choose another port");
}

TEST(Listen, an_address_of_another_machine_is_named) {
  LinkService service{Logger()};
  const auto on_link = [](const std::shared_ptr<Link>&) { return LinkCallbacks{}; };
  EXPECT_THAT(service.listen({"192.0.2.1", 0, make_identity(), {}, calm(), on_link}).error().message,
              HasSubstr("no such address"));
  EXPECT_THAT(service.listen({"node7", 0, make_identity(), {}, calm(), on_link}).error().message, HasSubstr("numeric"));
}

TEST(Listen, a_privileged_port_is_named) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may bind any port";
  LinkService service{Logger()};
  const auto address = service.listen(
      {"127.0.0.1", 80, make_identity(), {}, calm(), [](const std::shared_ptr<Link>&) { return LinkCallbacks{}; }});
  if (address.ok()) GTEST_SKIP() << "this machine lets anyone bind port 80";
  EXPECT_THAT(address.error().message, HasSubstr("need privileges"));
}

}  // namespace
}  // namespace kintsugi::transport
