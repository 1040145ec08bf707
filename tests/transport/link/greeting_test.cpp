#include "transport/link/greeting.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "schemas/codec.hpp"
#include "schemas/link.capnp.h"

namespace kintsugi::transport {
namespace {

using testing::HasSubstr;

Bytes32 filled_with(int value) {
  Bytes32 bytes;
  bytes.fill(static_cast<std::byte>(value));
  return bytes;
}

const Bytes32 kSecret = filled_with(1);
const Bytes32 kBinding = filled_with(2);

DecodedFrame control(Frame payload) {
  return {{FrameKind::control, 0, 0}, std::move(payload)};
}

TEST(Greeting, a_hello_with_the_secret_is_believed) {
  const Result<Hello> hello =
      check_hello(control(encode_hello({LinkRole::client, {42}, "node7"}, kSecret, kBinding)), kSecret, kBinding);
  ASSERT_TRUE(hello.ok());
  EXPECT_EQ(hello->role, LinkRole::client);
  EXPECT_EQ(hello->incarnation.value, 42u);
  EXPECT_EQ(hello->name, "node7");
}

TEST(Greeting, a_proof_is_worthless_with_another_secret_or_on_another_connection) {
  const auto hello = [] { return control(encode_hello({}, kSecret, kBinding)); };
  EXPECT_EQ(check_hello(hello(), filled_with(3), kBinding).error().action, ErrorAction::refuse);
  EXPECT_EQ(check_hello(hello(), kSecret, filled_with(3)).error().action, ErrorAction::refuse);
}

TEST(Greeting, the_listener_cannot_answer_with_the_dialers_own_proof) {
  capnp::MallocMessageBuilder builder;
  const Bytes32 reflected = prove(kSecret, "kintsugi link 1 dialer", kBinding);
  builder.initRoot<schemas::LinkControl>().initWelcome().setProof(
      capnp::Data::Reader(reinterpret_cast<const kj::byte*>(reflected.data()), reflected.size()));
  EXPECT_FALSE(check_answer(control(capnp::messageToFlatArray(builder)), kSecret, kBinding, "h:1").ok());
}

TEST(Greeting, a_welcome_carries_the_listeners_incarnation) {
  const auto answer = check_answer(control(encode_welcome({9}, kSecret, kBinding)), kSecret, kBinding, "h:1");
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->value, 9u);
}

TEST(Greeting, a_refusal_tells_a_person_who_why_and_what_next) {
  const auto answer = check_answer(control(encode_refused("its secret is old")), kSecret, kBinding, "h:1");
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().action, ErrorAction::refuse);
  EXPECT_EQ(answer.error().message,
            "the supervisor at h:1 refused the join token: its secret is old; get a new one from "
            "`kintsugi supervise`");
}

TEST(Greeting, another_version_is_refused_by_name) {
  capnp::MallocMessageBuilder builder;
  builder.initRoot<schemas::LinkControl>().initHello().setVersion(77);
  const Result<Hello> hello = check_hello(control(capnp::messageToFlatArray(builder)), kSecret, kBinding);
  ASSERT_FALSE(hello.ok());
  EXPECT_EQ(hello.error().action, ErrorAction::refuse);
  EXPECT_THAT(hello.error().message, HasSubstr("speaks link version 77"));
}

TEST(Greeting, anything_but_a_hello_is_told_nothing) {
  EXPECT_EQ(check_hello(control(encode_refused("x")), kSecret, kBinding).error().action, ErrorAction::fail_link);
  EXPECT_EQ(
      check_hello({{FrameKind::message, 0, 0}, encode_hello({}, kSecret, kBinding)}, kSecret, kBinding).error().action,
      ErrorAction::fail_link);
  EXPECT_EQ(check_hello(control(kj::heapArray<capnp::word>(0)), kSecret, kBinding).error().action,
            ErrorAction::fail_link);
}

TEST(Message, visiting_the_same_words_again_and_again_meets_the_traversal_limit) {
  const Frame words = encode_refused(std::string(1000, 'x'));
  std::size_t visits = 0;
  const Result<void> read = read_message<schemas::LinkControl>(words.asPtr(), "a control frame of a link",
                                                               [&](schemas::LinkControl::Reader in) -> Result<void> {
                                                                 while (visits < 1'000'000)
                                                                   visits += in.getRefused().size() > 0 ? 1 : 0;
                                                                 return {};
                                                               });
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("traversal limit"));
  EXPECT_GE(visits, 8u);
  EXPECT_LT(visits, 100u);
}

TEST(Message, a_pointer_out_of_the_message_is_an_error_and_no_crash) {
  Frame words = encode_refused("why");
  for (std::size_t i = 0; i < words.size(); ++i) {
    kj::Array<capnp::word> bent = kj::heapArray<capnp::word>(words);
    std::memset(bent.asBytes().begin() + i * sizeof(capnp::word), 0xfd, sizeof(capnp::word));
    static_cast<void>(check_answer(control(kj::heapArray<capnp::word>(bent)), kSecret, kBinding, "h:1"));
  }
}

}  // namespace
}  // namespace kintsugi::transport
