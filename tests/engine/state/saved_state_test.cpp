#include "engine/state/saved_state.hpp"

#include <gmock/gmock.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <numeric>

#include "base/file.hpp"
#include "base/philox.hpp"
#include "engine/state/save.hpp"
#include "tests/base/temporary_folder.hpp"

namespace kintsugi {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A small state, saved under DIR as a job of two groups would.
class SavedStateTest : public testing::Test {
 protected:
  struct Values {
    std::vector<float> master, moment1, moment2;
    ShardState state() { return {master, moment1, moment2}; }
    bool operator==(const Values&) const = default;
  };

  static Values values_of(const Shard& shard, std::uint64_t step) {
    Values values;
    for (std::vector<float>* array : {&values.master, &values.moment1, &values.moment2}) {
      array->resize(static_cast<std::size_t>(shard.count));
      std::iota(array->begin(), array->end(), static_cast<float>(1000 * step + array->size() * shard.id.value));
    }
    return values;
  }

  StateManifest manifest_of(std::uint64_t step) const {
    return {.position = {{11, 12}, Step{step}, step - 1, 32 * step},
            .lineage = Lineage{1},
            .job_yaml = "job: test\n",
            .shards = {},
            .parameters = {{"a.weight", GroupId{0}, 0, 2, 2050}, {"a.bias", GroupId{0}, 4100, 13, 1}},
            .state_digest = {}};
  }

  // Up to, not including, finish_save.
  StateManifest write_all(std::uint64_t step) const {
    StateManifest manifest = manifest_of(step);
    const auto staging = begin_save(dir_);
    EXPECT_TRUE(staging.ok()) << staging.error().message;
    for (const Shard& shard : shards_) {
      Values values = values_of(shard, step);
      manifest.shards.push_back(
          write_shard(*staging, manifest.position, manifest.lineage, shard, values.state()).value());
    }
    return manifest;
  }
  Digest save(std::uint64_t step) const {
    const auto digest = finish_save(dir_, write_all(step));
    EXPECT_TRUE(digest.ok()) << digest.error().message;
    return *digest;
  }
  std::uint64_t saved_step() const {
    const auto saved = SavedState::open(dir_);
    EXPECT_TRUE(saved.ok() && saved->verify().ok());
    return saved.ok() ? saved->manifest().position.step.value : 0;
  }
  // Why the save at DIR is not good, or "good".
  std::string verdict() const {
    const auto saved = SavedState::open(dir_);
    if (!saved) return saved.error().message;
    const Result<void> verified = saved->verify();
    return verified ? "good" : verified.error().message;
  }

  const std::vector<Shard> shards_{
      {ShardId{0}, GroupId{0}, 0, 4096}, {ShardId{1}, GroupId{0}, 4096, 17}, {ShardId{2}, GroupId{1}, 0, 5}};
  const TemporaryFolder temporary_;
  const std::string dir_ = temporary_.file("save");
};

std::string slurp(const std::string& path) {
  return read_text_file(path, std::size_t{1} << 20).value();
}

TEST_F(SavedStateTest, what_was_saved_is_read_again) {
  const Digest digest = save(5);
  const auto saved = SavedState::open(dir_);
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  const StateManifest& manifest = saved->manifest();
  EXPECT_EQ(manifest.position, manifest_of(5).position);
  EXPECT_EQ(manifest.lineage, Lineage{1});
  EXPECT_EQ(manifest.job_yaml, "job: test\n");
  EXPECT_EQ(manifest.state_digest, digest);
  ASSERT_EQ(manifest.parameters.size(), 2u);
  EXPECT_EQ(manifest.parameters[1].name, "a.bias");
  EXPECT_EQ(manifest.parameters[1].offset, 4100);
  EXPECT_TRUE(saved->check_shards(shards_).ok());
  for (const Shard& shard : shards_) {
    Values read = values_of(shard, 0);
    ASSERT_TRUE(saved->read_shard(shard.id, read.state()).ok());
    EXPECT_EQ(read, values_of(shard, 5));
  }
  EXPECT_FALSE(fs::exists(dir_ + ".tmp"));
}

TEST_F(SavedStateTest, several_processes_write_shards_of_one_save) {
  StateManifest manifest = manifest_of(6);
  const std::string staging = begin_save(dir_ + "/").value();
  for (const Shard& shard : shards_) {
    const pid_t child = ::fork();
    if (child == 0) {
      Values values = values_of(shard, 6);
      ::_exit(write_shard(staging, manifest.position, manifest.lineage, shard, values.state()).ok() ? 0 : 1);
    }
    manifest.shards.push_back({shard, shard_digest(values_of(shard, 6).state())});
  }
  for (int status = 0; ::wait(&status) > 0;) EXPECT_EQ(status, 0);
  ASSERT_TRUE(finish_save(dir_ + "/", manifest).ok());
  EXPECT_EQ(saved_step(), 6u);
}

TEST_F(SavedStateTest, a_newer_save_replaces_the_older_one) {
  const Digest older = save(5);
  EXPECT_NE(save(6), older);
  EXPECT_EQ(saved_step(), 6u);
  EXPECT_FALSE(fs::exists(dir_ + ".tmp") || fs::exists(dir_ + ".old"));
}

TEST_F(SavedStateTest, an_interrupted_save_leaves_the_older_one_and_the_next_one_goes_through) {
  save(5);
  write_all(6);  // and no more
  EXPECT_EQ(saved_step(), 5u);
  save(7);
  EXPECT_EQ(saved_step(), 7u);
}

TEST_F(SavedStateTest, a_save_whose_shards_are_missing_or_of_another_step_is_not_published) {
  save(5);
  StateManifest manifest = write_all(6);
  manifest.position.step = Step{7};
  EXPECT_THAT(finish_save(dir_, manifest).error().message, HasSubstr("another state than the manifest lists"));
  manifest = write_all(6);
  fs::remove(shard_file(dir_ + ".tmp", ShardId{1}));
  EXPECT_THAT(finish_save(dir_, manifest).error().message, HasSubstr("shard not written"));
  EXPECT_EQ(saved_step(), 5u);
}

TEST_F(SavedStateTest, a_crash_between_the_two_renames_of_a_plain_file_system_is_undone) {
  save(5);
  fs::rename(dir_, dir_ + ".old");
  EXPECT_THAT(verdict(), HasSubstr("Rename it back"));
  ASSERT_TRUE(begin_save(dir_).ok());
  EXPECT_EQ(saved_step(), 5u);
}

TEST_F(SavedStateTest, a_folder_that_is_no_save_is_never_touched) {
  temporary_.write("save/thesis.txt", "years of work");
  EXPECT_THAT(begin_save(dir_).error().message, HasSubstr("no save of kintsugi's"));
  EXPECT_EQ(slurp(dir_ + "/thesis.txt"), "years of work");
  fs::rename(dir_, dir_ + ".tmp");
  EXPECT_THAT(begin_save(dir_).error().message, HasSubstr("save.tmp exists and is no save"));
  fs::remove_all(dir_ + ".tmp");
  temporary_.write("save", "a file");
  EXPECT_THAT(begin_save(dir_).error().message, HasSubstr("no save of kintsugi's"));
  fs::remove(dir_);
  fs::create_directory(dir_);
  save(1);  // an empty folder is nobody's work
  EXPECT_EQ(saved_step(), 1u);
}

TEST_F(SavedStateTest, a_link_to_a_save_stays_a_link) {
  fs::create_directory(temporary_.file("real"));
  fs::create_directory_symlink(temporary_.file("real"), dir_);
  save(5);
  save(6);
  EXPECT_TRUE(fs::is_symlink(dir_));
  EXPECT_EQ(saved_step(), 6u);
}

TEST_F(SavedStateTest, a_bit_flipped_anywhere_in_a_shard_file_is_found) {
  save(5);
  const std::string path = shard_file(dir_, ShardId{1});
  const std::string good = slurp(path);
  for (std::size_t bit = 0; bit < good.size() * 8; bit += bit < 136 * 8 ? 1 : 61) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    temporary_.write("save/state/shard-00000001.bin", bad);
    ASSERT_THAT(verdict(), HasSubstr("shard-00000001.bin: ")) << "bit " << bit;
  }
  temporary_.write("save/state/shard-00000001.bin", good);
  EXPECT_EQ(verdict(), "good");
}

TEST_F(SavedStateTest, a_bit_flipped_or_a_byte_missing_anywhere_in_the_manifest_is_found) {
  save(5);
  const std::string good = slurp(manifest_file(dir_));
  for (std::size_t byte = 0; byte < good.size(); ++byte) {
    std::string bad = good;
    bad[byte] = static_cast<char>(bad[byte] ^ (1 << (byte % 8)));
    temporary_.write("save/state/manifest.capnp", bad);
    ASSERT_THAT(verdict(), HasSubstr("manifest.capnp: ")) << "byte " << byte;
    temporary_.write("save/state/manifest.capnp", good.substr(0, byte));
    ASSERT_THAT(verdict(), HasSubstr("manifest.capnp: ")) << "cut at " << byte;
  }
}

TEST_F(SavedStateTest, missing_files_are_named) {
  EXPECT_THAT(verdict(), HasSubstr("holds no saved state"));
  save(5);
  fs::remove(shard_file(dir_, ShardId{2}));
  EXPECT_THAT(verdict(), HasSubstr("shard-00000002.bin: the manifest lists it, but it is missing"));
  fs::remove(manifest_digest_file(dir_));
  EXPECT_THAT(verdict(), HasSubstr("manifest.xxh128"));
}

TEST_F(SavedStateTest, a_cut_shard_file_and_one_of_another_save_are_found) {
  save(4);
  fs::copy(shard_file(dir_, ShardId{0}), temporary_.file("older"));
  save(5);
  fs::copy(temporary_.file("older"), shard_file(dir_, ShardId{0}), fs::copy_options::overwrite_existing);
  EXPECT_THAT(verdict(), HasSubstr("is of step 4, shard 0: not what the manifest lists"));
  fs::resize_file(shard_file(dir_, ShardId{0}), 5000);
  EXPECT_THAT(verdict(), HasSubstr("has 5000 bytes, not 53248"));
}

TEST_F(SavedStateTest, another_job_or_another_cut_is_refused_with_what_may_differ) {
  save(5);
  const auto saved = SavedState::open(dir_);
  EXPECT_TRUE(saved->check_job({11, 12}).ok());
  EXPECT_THAT(saved->check_job({11, 13}).error().message, HasSubstr("Only the name, data.train, parallel and steps"));
  std::vector<Shard> others = shards_;
  others[1].count = 18;
  EXPECT_THAT(saved->check_shards(others).error().message, HasSubstr("not cut like the model's"));
  others.pop_back();
  EXPECT_FALSE(saved->check_shards(others).ok());
}

// Past the digest of its bytes: what decode_manifest itself withstands.
TEST_F(SavedStateTest, hostile_manifests_are_refused_or_hold_what_they_say) {
  const std::vector<std::byte> good = encode_manifest(write_all(5));
  std::uint64_t accepted = 0;
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    std::vector<std::byte> bad = good;
    for (std::uint64_t change = 0; change <= seed % 4; ++change) {
      const std::uint64_t draw = philox_u64(philox_key(seed), change, 0);
      bad[draw % bad.size()] = static_cast<std::byte>(draw >> 32);
    }
    if (seed % 5 == 0) bad.resize(philox_u64(philox_key(seed), 9, 0) % bad.size());
    const auto decoded = decode_manifest(bad, "fuzz");
    if (!decoded) continue;
    ++accepted;
    EXPECT_EQ(state_digest(*decoded), decoded->state_digest);
  }
  EXPECT_GT(accepted, 100u);  // changes of names and text
}

TEST_F(SavedStateTest, hostile_shard_headers_are_refused) {
  const std::vector<std::byte> good = encode_shard_header({{{1, 2}, Step{3}, 4, 5}, Lineage{1}, {shards_[0], {6, 7}}});
  ASSERT_TRUE(decode_shard_header(good, "fuzz").ok());
  EXPECT_FALSE(decode_shard_header(std::span(good).first(100), "fuzz").ok());
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    std::vector<std::byte> bad = good;
    const std::uint64_t draw = philox_u64(philox_key(seed), 0, 0);
    bad[draw % 24] ^= std::byte{1} << (draw >> 32) % 8;  // segment table, root pointer, magic
    ASSERT_FALSE(decode_shard_header(bad, "fuzz").ok()) << seed;
  }
}

struct Outcome {
  int status;
  std::string output;
};

Outcome run(const std::string& command) {
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string output;
  for (int c = ::fgetc(pipe); c != EOF; c = ::fgetc(pipe)) output += static_cast<char>(c);
  return {WEXITSTATUS(::pclose(pipe)), output};
}

TEST_F(SavedStateTest, the_python_script_agrees_and_finds_damage) {
  std::string python;
  for (const std::string candidate : {"python3", "/usr/bin/python3"}) {
    if (python.empty() && run(candidate + " -c 'import xxhash'").status == 0) python = candidate;
  }
  if (python.empty()) GTEST_SKIP() << "no python3 with the package xxhash (Debian: python3-xxhash)";
  const std::string command = python + " " KINTSUGI_SOURCE_DIR "/scripts/state_digest.py " + dir_;
  const Digest digest = save(5);
  const Outcome good = run(command);
  EXPECT_EQ(good.status, 0);
  EXPECT_EQ(good.output, to_hex(digest) + "  step 5, t 4, 3 shards\n");
  std::fstream file(shard_file(dir_, ShardId{2}), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(kShardHeaderBytes + 33);
  file.put('\x7f');
  file.close();
  const Outcome bad = run(command);
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.output, HasSubstr("shard-00000002.bin: its values have digest"));
}

}  // namespace
}  // namespace kintsugi
