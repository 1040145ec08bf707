#include "base/log.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "tests/base/temporary_folder.hpp"

namespace kintsugi {
namespace {

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::istringstream text(*read_text_file(path, 1 << 20));
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));  // strict: throws
  return lines;
}

TEST(Log, every_line_is_one_json_object_with_its_fields_in_their_own_types) {
  const TemporaryFolder folder;
  const std::string path = folder.file("log");
  Logger::to_file(path, LogLevel::info, "rank 0")
      .warning("slow step", {{"step", 7u},
                             {"delta", -3},
                             {"bytes", std::numeric_limits<std::uint64_t>::max()},
                             {"loss", 1.5},
                             {"final", true},
                             {"why", "link"},
                             {"peer", std::string("node 2")}});
  const std::vector<nlohmann::json> lines = lines_of(path);
  ASSERT_EQ(lines.size(), 1u);
  const nlohmann::json& line = lines[0];
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["component"], "rank 0");
  EXPECT_EQ(line["message"], "slow step");
  EXPECT_EQ(line["step"], 7);
  EXPECT_EQ(line["delta"], -3);
  EXPECT_EQ(line["bytes"], std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(line["loss"], 1.5);
  EXPECT_EQ(line["final"], true);
  EXPECT_EQ(line["why"], "link");
  EXPECT_EQ(line["peer"], "node 2");
  EXPECT_GT(line["pid"], 0);
  EXPECT_EQ(line["time"].get<std::string>().back(), 'Z');
}

TEST(Log, whatever_bytes_a_text_holds_the_line_stays_json) {
  const TemporaryFolder folder;
  const std::string path = folder.file("log");
  const Logger log = Logger::to_file(path, LogLevel::info, "quo\"te");
  const std::string awkward = std::string("tab\t quote\" back\\slash newline\n nul") + '\0' + " {} %v \x1f";
  log.info(awkward, {{"k\"ey", "金継ぎ"}});
  log.info("bad bytes",
           {{"a", "\xff"}, {"b", "\xc3"}, {"c", "\xe0\x80\x80"}, {"d", "\xed\xa0\x80"}, {"e", "\xf4\x90\x80\x80"}});
  const std::vector<nlohmann::json> lines = lines_of(path);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["component"], "quo\"te");
  EXPECT_EQ(lines[0]["message"], awkward);
  EXPECT_EQ(lines[0]["k\"ey"], "金継ぎ");
  EXPECT_EQ(lines[1]["a"], "\ufffd");
  EXPECT_EQ(lines[1]["b"], "\ufffd");
  EXPECT_EQ(lines[1]["c"], "\ufffd\ufffd\ufffd");
}

TEST(Log, numbers_that_json_lacks_become_null) {
  const TemporaryFolder folder;
  const std::string path = folder.file("log");
  Logger::to_file(path, LogLevel::info, "c")
      .info("m", {{"nan", std::numeric_limits<double>::quiet_NaN()}, {"inf", std::numeric_limits<float>::infinity()}});
  EXPECT_TRUE(lines_of(path)[0]["nan"].is_null());
  EXPECT_TRUE(lines_of(path)[0]["inf"].is_null());
}

TEST(Log, lines_below_the_level_are_dropped_and_components_share_the_file) {
  const TemporaryFolder folder;
  const std::string path = folder.file("log");
  const Logger log = Logger::to_file(path, LogLevel::warning, "a");
  log.info("dropped");
  log.error("kept");
  log.with_component("b").warning("kept too");
  const std::vector<nlohmann::json> lines = lines_of(path);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["component"], "a");
  EXPECT_EQ(lines[1]["component"], "b");
}

TEST(Log, a_default_logger_writes_nothing) {
  testing::internal::CaptureStderr();
  Logger().error("nobody hears");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Log, a_file_that_cannot_be_opened_sends_the_log_to_standard_error_and_says_so) {
  testing::internal::CaptureStderr();
  Logger::to_file("/dev/null/nowhere", LogLevel::info, "c").info("still heard");
  const std::string err = testing::internal::GetCapturedStderr();
  EXPECT_NE(err.find("/dev/null/nowhere"), std::string::npos) << err;
  EXPECT_NE(err.find("still heard"), std::string::npos) << err;
}

}  // namespace
}  // namespace kintsugi
