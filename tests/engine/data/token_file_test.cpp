#include "engine/data/token_file.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "base/philox.hpp"
#include "tests/base/temporary_folder.hpp"

namespace kintsugi {
namespace {

using testing::HasSubstr;

std::string llmc_file(std::int32_t magic, std::int32_t version, std::int32_t count,
                      const std::vector<std::uint16_t>& tokens) {
  std::string bytes(kLlmcHeaderBytes, '\0');
  const std::int32_t head[3] = {magic, version, count};
  std::memcpy(bytes.data(), head, sizeof head);
  bytes.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2);
  return bytes;
}

std::string why(const std::string& path, TokenFormat format) {
  const auto file = TokenFile::open(path, format);
  return file ? "opened" : file.error().message;
}

TEST(TokenFile, all_three_formats_give_the_same_tokens) {
  const TemporaryFolder dir;
  const std::vector<std::uint16_t> narrow{5, 0, 65535, 7, 300};
  const std::vector<std::uint32_t> wide(narrow.begin(), narrow.end());
  const std::vector<std::pair<std::string, TokenFormat>> files{
      {dir.write_values("a", narrow), TokenFormat::uint16},
      {dir.write_values("b", wide), TokenFormat::uint32},
      {dir.write("c", llmc_file(20240520, 1, 5, narrow)), TokenFormat::llmc}};
  for (const auto& [path, format] : files) {
    const auto file = TokenFile::open(path, format).value();
    ASSERT_EQ(file->token_count(), 5u);
    std::vector<std::int32_t> tokens(3);
    ASSERT_TRUE(file->read(2, tokens, 65536).ok());
    EXPECT_EQ(tokens, (std::vector<std::int32_t>{65535, 7, 300})) << to_string(format);
    file->will_need(4, 1);
  }
}

TEST(TokenFile, a_token_outside_the_vocabulary_is_refused_with_the_first_position) {
  const TemporaryFolder dir;
  std::vector<std::uint32_t> tokens(1000, 99);
  tokens[400] = 4'000'000'000u;
  tokens[401] = 100;
  const auto file = TokenFile::open(dir.write_values("t", tokens), TokenFormat::uint32).value();
  std::vector<std::int32_t> out(400);
  EXPECT_TRUE(file->read(0, out, 100).ok());
  const auto refused = file->read(100, out, 100);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("token 400 is 4000000000, outside the model's vocabulary of 100"));
  EXPECT_EQ(file->first_outside(0, 1000, 100), 400u);
  EXPECT_EQ(file->first_outside(401, 599, 100), 401u);
  EXPECT_EQ(file->first_outside(402, 598, 100), std::nullopt);
}

TEST(TokenFile, files_that_cannot_be_tokens_are_refused_with_the_reason) {
  const TemporaryFolder dir;
  EXPECT_THAT(why(dir.file("missing"), TokenFormat::uint16), HasSubstr("No such file"));
  EXPECT_THAT(why(dir.file(""), TokenFormat::uint16), HasSubstr("is a directory"));
  EXPECT_THAT(why(dir.write("empty", ""), TokenFormat::uint16), HasSubstr("is empty"));
  EXPECT_THAT(why(dir.write("odd", "abc"), TokenFormat::uint16), HasSubstr("no whole number of uint16 tokens"));
  EXPECT_THAT(why(dir.write("odd", "abcdef"), TokenFormat::uint32), HasSubstr("no whole number of uint32 tokens"));
  ASSERT_EQ(::mkfifo(dir.file("fifo").c_str(), 0600), 0);
  EXPECT_THAT(why(dir.file("fifo"), TokenFormat::uint16), HasSubstr("not a regular file"));
}

TEST(TokenFile, a_file_without_permission_is_refused) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const TemporaryFolder dir;
  const std::string path = dir.write("secret", "ab");
  ::chmod(path.c_str(), 0);
  EXPECT_THAT(why(path, TokenFormat::uint16), HasSubstr("Permission denied"));
}

TEST(TokenFile, a_damaged_llmc_header_is_refused_with_the_reason) {
  const TemporaryFolder dir;
  const std::vector<std::uint16_t> two{1, 2};
  const auto why_header = [&](std::int32_t magic, std::int32_t version, std::int32_t count) {
    return why(dir.write("t", llmc_file(magic, version, count, two)), TokenFormat::llmc);
  };
  EXPECT_THAT(why_header(20240521, 1, 2), HasSubstr("llm.c's magic"));
  EXPECT_THAT(why_header(20240520, 2, 2), HasSubstr("version 2"));
  EXPECT_THAT(why_header(20240520, 1, 3), HasSubstr("announces 3 tokens"));
  EXPECT_THAT(why_header(20240520, 1, 1), HasSubstr("announces 1 tokens"));
  EXPECT_THAT(why_header(20240520, 1, -1), HasSubstr("announces -1 tokens"));
  EXPECT_THAT(why(dir.write("t", llmc_file(20240520, 1, 2, two) + "x"), TokenFormat::llmc), HasSubstr("announces"));
  EXPECT_THAT(why(dir.write("t", llmc_file(20240520, 1, 0, {})), TokenFormat::llmc), HasSubstr("no tokens"));
  EXPECT_THAT(why(dir.write("t", "short"), TokenFormat::llmc), HasSubstr("header alone has 1024"));
}

// The fuzz target's property, on a fixed row of inputs: whatever the bytes, tokens that are found lie inside the file.
TEST(TokenFile, any_header_is_either_refused_or_describes_tokens_inside_the_file) {
  std::uint64_t accepted = 0;
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    const auto draw = [&](std::uint64_t what) { return philox_u64(philox_key(seed), what, 0); };
    std::vector<std::byte> head(draw(0) % 1200);
    for (std::size_t i = 0; i < head.size(); ++i) head[i] = static_cast<std::byte>(draw(8 + i / 8) >> (i % 8 * 8));
    const std::int32_t good[3] = {20240520, 1,
                                  static_cast<std::int32_t>((head.size() - kLlmcHeaderBytes) / 2 + draw(1) % 2)};
    if (head.size() >= kLlmcHeaderBytes && draw(2) % 4 != 0) std::memcpy(head.data(), good, sizeof good);
    const auto format = static_cast<TokenFormat>(draw(3) % 3);
    const auto span = find_tokens(head, head.size(), format, "fuzz");
    if (!span) continue;
    ++accepted;
    EXPECT_GT(span->count, 0u);
    EXPECT_EQ(span->begin_bytes + span->count * span->token_bytes, head.size()) << "seed " << seed;
  }
  EXPECT_GT(accepted, 1000u);
}

}  // namespace
}  // namespace kintsugi
