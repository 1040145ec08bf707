#include "engine/data/prepare.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>

#include "base/file.hpp"
#include "engine/data/inspect.hpp"
#include "engine/data/token_file.hpp"
#include "tests/base/temporary_folder.hpp"

namespace kintsugi {
namespace {

using testing::HasSubstr;

class PrepareTest : public testing::Test {
 protected:
  Result<PrepareStatistics> run(std::vector<std::string> inputs, std::uint64_t max_bytes = UINT64_MAX) {
    return prepare({.inputs = std::move(inputs), .output = out_, .max_bytes = max_bytes, .progress = {}});
  }
  // The output as text, a separator as '|'.
  std::string text() const {
    const auto file = TokenFile::open(out_, TokenFormat::uint16).value();
    std::vector<std::uint32_t> tokens(file->token_count());
    file->read_raw(0, tokens);
    std::string shown;
    for (const std::uint32_t token : tokens) shown += token == 0 ? '|' : static_cast<char>(token);
    return shown;
  }
  TemporaryFolder dir_;
  std::string out_ = dir_.file("out.bin");
};

TEST_F(PrepareTest, a_tree_is_read_in_the_order_of_its_paths) {
  dir_.write("t/b.txt", "bee");
  dir_.write("t/a/z", "zed");
  dir_.write("t/a.txt", "ay");
  dir_.write("t/a-b/x", "ex");
  const auto done = run({dir_.file("t")});
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(text(), "ex|ay|zed|bee");  // "a-b/x" < "a.txt" < "a/z" < "b.txt"
  EXPECT_EQ(done->documents, 4u);
  EXPECT_EQ(done->tokens, 13u);
}

TEST_F(PrepareTest, arguments_keep_their_order) {
  EXPECT_TRUE(run({dir_.write("two", "2"), dir_.write("one", "1")}).ok());
  EXPECT_EQ(text(), "2|1");
}

TEST_F(PrepareTest, binary_files_are_left_out_whole_and_counted) {
  dir_.write("t/a", "text");
  // The NUL comes after the first chunk: what was written of the file is taken back.
  dir_.write("t/b", std::string(3'000'000, 'x') + std::string(1, '\0') + "y");
  dir_.write("t/c", "more");
  const auto done = run({dir_.file("t")});
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(text(), "text|more");
  EXPECT_EQ(done->skipped_binary, 1u);
  EXPECT_THAT(done->summary(), HasSubstr("1 binary files skipped"));
}

TEST_F(PrepareTest, links_hidden_entries_empty_files_and_pipes_are_passed_over) {
  dir_.write("t/a", "text");
  dir_.write("t/.git/config", "hidden");
  dir_.write("t/empty", "");
  ASSERT_EQ(::symlink(".", dir_.file("t/loop").c_str()), 0);
  ASSERT_EQ(::symlink("a", dir_.file("t/link").c_str()), 0);
  ASSERT_EQ(::mkfifo(dir_.file("t/pipe").c_str(), 0600), 0);
  const auto done = run({dir_.file("t")});
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(text(), "text");
  EXPECT_EQ(done->skipped_other, 5u);
}

TEST_F(PrepareTest, unreadable_files_are_counted_and_the_first_is_named) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  dir_.write("t/a", "text");
  ::chmod(dir_.write("t/b", "secret").c_str(), 0);
  const auto done = run({dir_.file("t")});
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(done->skipped_unreadable, 1u);
  EXPECT_THAT(done->summary(), HasSubstr("t/b: Permission denied"));
}

TEST_F(PrepareTest, the_byte_limit_counts_separators_and_cuts_the_last_document) {
  dir_.write("t/a", "abc");
  dir_.write("t/b", "defg");
  dir_.write("t/c", "never");
  const auto done = run({dir_.file("t")}, 6);
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(text(), "abc|de");
  EXPECT_TRUE(done->capped);
  EXPECT_EQ(done->documents, 2u);
}

TEST_F(PrepareTest, nothing_to_write_leaves_an_older_file_and_no_temporary) {
  dir_.write("out.bin", "old!");
  std::filesystem::create_directory(dir_.file("empty"));
  const auto failed = run({dir_.file("empty")});
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message, HasSubstr("no text to prepare"));
  EXPECT_THAT(run({dir_.file("missing")}).error().message, HasSubstr("no such file"));
  EXPECT_EQ(read_text_file(out_, 100).value(), "old!");
  const std::filesystem::directory_iterator files(std::filesystem::path(out_).parent_path());
  for (const auto& entry : files) EXPECT_THAT(entry.path().string(), testing::Not(HasSubstr(".tmp")));
}

TEST_F(PrepareTest, progress_is_reported_for_every_document) {
  dir_.write("t/a", "abc");
  dir_.write("t/b", "de");
  std::vector<std::uint64_t> tokens;
  ASSERT_TRUE(prepare({.inputs = {dir_.file("t")},
                       .output = out_,
                       .progress = [&](const PrepareStatistics& s) { tokens.push_back(s.tokens); }})
                  .ok());
  EXPECT_EQ(tokens, (std::vector<std::uint64_t>{3, 6}));
}

TEST_F(PrepareTest, the_unigram_entropy_is_that_of_the_text) {
  const auto done = run({dir_.write("a", "aabc")});
  EXPECT_NEAR(done->unigram_entropy_nats, 1.5 * std::log(2.0), 1e-12);  // 1/2, 1/4, 1/4: 1.5 bits
}

TEST_F(PrepareTest, inspect_tells_the_facts_of_what_was_prepared) {
  ASSERT_TRUE(run({dir_.write("a", "ab\ncd\x01"), dir_.write("b", "zz")}).ok());
  const auto facts = inspect_tokens(out_, std::nullopt);
  ASSERT_TRUE(facts.ok());
  EXPECT_EQ(facts->format, TokenFormat::uint16);
  EXPECT_EQ(facts->tokens, 9u);
  EXPECT_EQ(facts->smallest, 0u);
  EXPECT_EQ(facts->largest, 122u);
  EXPECT_EQ(facts->vocabulary_needed, 123u);
  EXPECT_EQ(facts->samples(4), 2u);
  EXPECT_EQ(facts->first_tokens, "ab\\ncd\\x01\\x00zz");
  EXPECT_GT(*facts->unigram_entropy_nats, 2.0);
}

TEST_F(PrepareTest, inspect_shows_numbers_where_tokens_are_no_bytes) {
  const auto facts = inspect_tokens(dir_.write_values<std::uint32_t>("w", {1, 4'000'000'000u}), TokenFormat::uint32);
  ASSERT_TRUE(facts.ok());
  EXPECT_EQ(facts->first_tokens, "1 4000000000");
  EXPECT_EQ(facts->vocabulary_needed, 4'000'000'001u);
  EXPECT_FALSE(facts->unigram_entropy_nats.has_value());
}

}  // namespace
}  // namespace kintsugi
