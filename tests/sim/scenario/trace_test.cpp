#include <gmock/gmock.h>

#include "sim/scenario/scenario.hpp"

namespace kintsugi::sim {
namespace {

using ::testing::HasSubstr;

std::string csv_refusal(const std::string& rows) {
  const auto read = parse_trace_csv("start,end,node,class\n" + rows, "t.csv");
  return read ? "accepted" : read.error().message;
}
std::string json_refusal(const std::string& text) {
  const auto read = parse_trace_json(text, "t.json");
  return read ? "accepted" : read.error().message;
}

TEST(Trace, csv_and_json_say_the_same) {
  const auto csv =
      parse_trace_csv("start,end,node,class\n0.5,10,3,node\r\n# a remark\n\n4,6,1,rack\n10,12,3,device\n", "t.csv");
  const auto json = parse_trace_json(
      R"([{"start":0.5,"end":10,"node":3,"class":"node"},{"start":4,"end":6,"node":1,"class":"rack"},
          {"start":10,"end":12,"node":3,"class":"device"}])",
      "t.json");
  ASSERT_TRUE(csv);
  ASSERT_TRUE(json);
  EXPECT_EQ(*csv, *json);
  EXPECT_EQ((*csv)[1], (TraceEvent{4, 6, 1, FaultClass::rack}));
}

TEST(Trace, what_overlaps_or_is_not_sorted_is_refused_with_its_line) {
  EXPECT_THAT(csv_refusal("0,10,3,node\n5,6,3,node\n"), HasSubstr("t.csv:3: start: node 3 is still out until 10"));
  EXPECT_THAT(csv_refusal("5,6,3,node\n4,5,1,node\n"), HasSubstr("t.csv:3: start: 4 comes after 5"));
  EXPECT_THAT(csv_refusal("5,4,3,node\n"), HasSubstr("t.csv:2: end: 4 comes before start 5"));
  EXPECT_THAT(
      json_refusal(R"([{"start":0,"end":9,"node":1,"class":"node"},{"start":3,"end":4,"node":1,"class":"node"}])"),
      HasSubstr("t.json: element 1: start: node 1 is still out"));
}

TEST(Trace, what_is_no_trace_is_refused) {
  EXPECT_THAT(parse_trace_csv("time,node\n", "t.csv").error().message, HasSubstr("t.csv:1: a trace begins with"));
  EXPECT_THAT(csv_refusal("0,1,2\n"), HasSubstr("t.csv:2: has 3 fields"));
  EXPECT_THAT(csv_refusal("0,x,2,node\n"), HasSubstr("end: is no number"));
  EXPECT_THAT(csv_refusal("-1,2,2,node\n"), HasSubstr("start"));
  EXPECT_THAT(csv_refusal("nan,2,2,node\n"), HasSubstr("start"));
  EXPECT_THAT(csv_refusal("0,1,-2,node\n"), HasSubstr("node: is no number"));
  EXPECT_THAT(csv_refusal("0,1,2,gremlin\n"), HasSubstr("class: 'gremlin' is not known"));
  EXPECT_THAT(json_refusal("{}"), HasSubstr("no JSON list"));
  EXPECT_THAT(json_refusal("[{\"start\":0,\"end\":1,\"node\":1.5,\"class\":\"node\"}]"),
              HasSubstr("node: is no whole number"));
  EXPECT_THAT(json_refusal("[{\"begin\":0}]"), HasSubstr("begin: unknown key"));
}

}  // namespace
}  // namespace kintsugi::sim
