#include "sim/protocol/oracle.hpp"

#include <gtest/gtest.h>

namespace kintsugi::sim::protocol {
namespace {

Shape shape_of(std::int64_t lanes, std::uint64_t seed = 5) {
  Shape shape;
  shape.seed = seed;
  shape.lanes = lanes;
  return shape;
}

Digest end_of(const Shape& shape) {
  const Job job(shape);
  return Oracle(job).final_digest();
}

TEST(Oracle, its_end_is_a_function_of_what_the_job_computes_and_of_nothing_else) {
  const Digest end = end_of(shape_of(4));
  EXPECT_EQ(end_of(shape_of(4)), end);
  EXPECT_NE(end_of(shape_of(4, 6)), end);
  EXPECT_NE(end_of(shape_of(5)), end);
  Shape other = shape_of(4);
  other.slots = {1, 1, 1};
  other.stages = 1;
  other.schedule = ScheduleKind::gpipe;
  other.replicas = 3;
  EXPECT_EQ(end_of(other), end) << "of the plan";
}

TEST(Oracle, a_step_whose_gradient_is_not_finite_leaves_state_and_t_alone) {
  Shape shape = shape_of(4);
  shape.skip_one_in = 1;
  const Job job(shape);
  Oracle oracle(job);
  EXPECT_EQ(oracle.states({3}), oracle.states({0}));
  EXPECT_EQ(oracle.record({3}).outcome, Outcome::skip);
  EXPECT_EQ(oracle.record({3}).updates, 0U);
}

TEST(Marks, addition_knows_left_from_right_and_an_update_its_rates) {
  const Sum a{1, 1}, b{2, 2};
  EXPECT_NE(add(a, b), add(b, a));
  EXPECT_NE(add(add(a, b), {3, 4}), add(a, add(b, {3, 4})));
  DecisionRecord record;
  record.learning_rate = 0.1F;
  const Mark next = next_state(7, 8, record);
  record.learning_rate = 0.2F;
  EXPECT_NE(next_state(7, 8, record), next);
}

}  // namespace
}  // namespace kintsugi::sim::protocol
