#include "base/digest.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace kintsugi {
namespace {

struct Known {
  std::size_t bytes;
  const char* hex;
};

// From tests/base/digest_golden.py.
constexpr Known kKnown[] = {
    {0, "99aa06d3014798d86001c324468d497f"},    {1, "495b62073ef70ca44c5cca45d0f4811f"},
    {3, "46f66cb93538156515f7093b173d005c"},    {4, "7fefeeffb4d0eab3b987ca5d9241572a"},
    {8, "803c675a846cc6c256bb836ceb6d4baa"},    {9, "d46556872d230f224376673580310154"},
    {16, "650fe308c566747df853dd94614dfa07"},   {17, "18217300b5132d5a78c349fe81b2f26c"},
    {128, "b4f87b99d2db8a511e04fad9f0cacb4d"},  {129, "6881633650cd8924c51bc887976aef63"},
    {240, "de57aab31e77a2ff93e173833f75ab66"},  {241, "92b991a7192f3f080b3b630948ce4a00"},
    {1024, "4c17271c906df79223bc880ebf0d29c6"}, {1025, "70a4eb1b9691d77fc09fdfbc398c7d82"},
    {4096, "49d3842b33d51e8aa3c19f8174cde0bb"}, {100003, "cb5ebd34f7252f19e0950e66cf107fe8"},
};

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 31 + 7);
  return data;
}

TEST(Digest, one_shot_gives_the_reference_values_at_every_branch_of_the_length) {
  for (const Known& known : kKnown) EXPECT_EQ(to_hex(digest_of(pattern(known.bytes))), known.hex) << known.bytes;
}

TEST(Digest, streaming_gives_the_same_however_the_bytes_are_cut) {
  for (const Known& known : kKnown) {
    const std::vector<std::byte> data = pattern(known.bytes);
    for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{64}, std::size_t{1'000}}) {
      Hasher hasher;
      for (std::size_t at = 0; at < data.size(); at += piece) {
        hasher.update(std::span(data).subspan(at, std::min(piece, data.size() - at)));
      }
      EXPECT_EQ(to_hex(hasher.finish()), known.hex) << known.bytes << " in pieces of " << piece;
    }
  }
}

TEST(Digest, finish_does_not_end_the_stream_and_reset_starts_anew) {
  const std::vector<std::byte> data = pattern(300);
  Hasher hasher;
  hasher.update(std::span(data).first(100));
  EXPECT_EQ(hasher.finish(), digest_of(std::span(data).first(100)));
  hasher.update(std::span(data).subspan(100));
  EXPECT_EQ(hasher.finish(), digest_of(data));
  hasher.reset();
  EXPECT_EQ(hasher.finish(), digest_of({}));
}

TEST(Digest, a_hasher_can_be_moved_in_mid_stream) {
  const std::vector<std::byte> data = pattern(300);
  Hasher hasher;
  hasher.update(std::span(data).first(10));
  Hasher moved = std::move(hasher);
  moved.update(std::span(data).subspan(10));
  EXPECT_EQ(moved.finish(), digest_of(data));
}

TEST(Digest, strings_do_not_run_together) {
  Hasher a;
  a.update_string("ab");
  a.update_string("c");
  Hasher b;
  b.update_string("a");
  b.update_string("bc");
  EXPECT_NE(a.finish(), b.finish());
}

TEST(Digest, numbers_enter_as_eight_little_endian_bytes) {
  Hasher hasher;
  hasher.update_u64(0x0102030405060708u);
  const std::byte bytes[] = {std::byte{8}, std::byte{7}, std::byte{6}, std::byte{5},
                             std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1}};
  EXPECT_EQ(hasher.finish(), digest_of(bytes));
}

TEST(Digest, hexadecimal_text_goes_there_and_back_and_nothing_else_parses) {
  const Digest digest{0x0123456789abcdefu, 0xfedcba9876543210u};
  EXPECT_EQ(to_hex(digest), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(digest_from_hex(to_hex(digest)), digest);
  EXPECT_FALSE(digest_from_hex(""));
  EXPECT_FALSE(digest_from_hex(std::string(31, '0')));
  EXPECT_FALSE(digest_from_hex(std::string(33, '0')));
  EXPECT_FALSE(digest_from_hex(std::string(31, '0') + "g"));
  EXPECT_FALSE(digest_from_hex(std::string(31, '0') + "A"));
}

}  // namespace
}  // namespace kintsugi
