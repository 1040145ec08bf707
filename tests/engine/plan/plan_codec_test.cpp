#include "engine/plan/plan_codec.hpp"

#include <capnp/message.h>

#include "tests/engine/plan/plan_cases.hpp"

namespace kintsugi {
namespace {

TEST(PlanCodec, a_plan_survives_its_journey) {
  const Plan plan = testing::plan_for(testing::small_job(4, 8, 3), 5, 2);
  capnp::MallocMessageBuilder message;
  write_plan(plan, message.initRoot<schemas::Plan>());
  const Result<Plan> read = read_plan(message.getRoot<schemas::Plan>().asReader());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, plan);
}

TEST(PlanCodec, a_changed_table_is_refused) {
  const Plan plan = testing::plan_for(testing::small_job(4, 8, 2), 4);
  capnp::MallocMessageBuilder message;
  auto out = message.initRoot<schemas::Plan>();
  write_plan(plan, out);
  out.getShards()[0].setPrimary(3 - plan.primary_of({0}).value);
  EXPECT_FALSE(read_plan(out.asReader()).ok());
}

TEST(PlanCodec, a_table_with_a_true_digest_but_a_hole_in_its_lanes_is_refused) {
  Plan plan = testing::plan_for(testing::small_job(4, 8, 2), 4);
  plan.stages[1].blocks[0].lanes.end -= 1;
  capnp::MallocMessageBuilder message;
  write_plan(plan, message.initRoot<schemas::Plan>());
  const Result<Plan> read = read_plan(message.getRoot<schemas::Plan>().asReader());
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("cover"), std::string::npos);
}

TEST(PlanCodec, a_table_with_a_holder_that_is_no_member_or_holds_twice_is_refused) {
  const Plan sound = testing::plan_for(testing::small_job(4, 8, 2), 4, 2);
  ASSERT_EQ(sound.shards[0].replicas.size(), 1U);
  for (const RankId replica : {RankId{17}, sound.shards[0].primary}) {
    Plan plan = sound;
    plan.shards[0].replicas[0] = replica;
    capnp::MallocMessageBuilder message;
    write_plan(plan, message.initRoot<schemas::Plan>());
    EXPECT_FALSE(read_plan(message.getRoot<schemas::Plan>().asReader()).ok());
  }
}

}  // namespace
}  // namespace kintsugi
