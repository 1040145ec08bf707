#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/float64_reference.hpp"

namespace kintsugi::kernels::cpu {
namespace {

constexpr std::int64_t kCounts[] = {1, 3, 17, 100, 257, 65536 + 17};

template <class T>
class Elementwise : public ::testing::Test {};
TYPED_TEST_SUITE(Elementwise, Storages);

TYPED_TEST(Elementwise, fill_stores_the_value_rounded) {
  ThreadPool pool(2);
  for (const std::int64_t count : kCounts) {
    std::vector<TypeParam> out(static_cast<std::size_t>(count));
    fill(pool, out.data(), 1.00390625f, count);  // halfway between two bfloat16s: goes to the even one
    const auto expected = rounded<TypeParam>(1.00390625);
    for (const TypeParam v : out) ASSERT_EQ(to_double(v), to_double(expected));
  }
}

TYPED_TEST(Elementwise, add_is_the_rounded_float32_sum_and_may_work_in_place) {
  ThreadPool pool(2);
  for (const std::int64_t count : kCounts) {
    const auto a = random_vector<TypeParam>(count, 4, 1), b = random_vector<TypeParam>(count, 4, 2);
    std::vector<TypeParam> out(a.size()), in_place = b;
    add(pool, out.data(), a.data(), b.data(), count);
    add(pool, in_place.data(), a.data(), in_place.data(), count);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const float sum = static_cast<float>(to_double(a[i])) + static_cast<float>(to_double(b[i]));
      ASSERT_EQ(to_double(out[i]), to_double(rounded<TypeParam>(sum)));
    }
    EXPECT_TRUE(same_bits(out, in_place));
  }
}

TEST(Convert, narrowing_rounds_to_nearest_even_and_widening_is_exact) {
  ThreadPool pool(2);
  for (const std::int64_t count : kCounts) {
    const auto in = random_vector<float>(count, 1e3, 1);
    std::vector<bf16> narrow(in.size());
    std::vector<float> wide(in.size());
    convert(pool, narrow.data(), in.data(), count);
    convert(pool, wide.data(), narrow.data(), count);
    for (std::size_t i = 0; i < in.size(); ++i) {
      ASSERT_EQ(narrow[i].bits, rounded<bf16>(in[i]).bits);
      ASSERT_EQ(wide[i], to_double(narrow[i]));
    }
  }
}

TEST(Convert, infinities_stay_and_a_nan_never_becomes_one) {
  ThreadPool pool(1);
  const float infinity = std::numeric_limits<float>::infinity();
  // The last NaN has its payload in the lower half alone.
  const std::vector<float> in{infinity,
                              -infinity,
                              std::numeric_limits<float>::max(),
                              -0.0f,
                              std::numeric_limits<float>::quiet_NaN(),
                              std::bit_cast<float>(0x7f800001u)};
  std::vector<bf16> out(in.size());
  convert(pool, out.data(), in.data(), static_cast<std::int64_t>(in.size()));
  EXPECT_EQ(out[0].bits, 0x7f80);
  EXPECT_EQ(out[1].bits, 0xff80);
  EXPECT_EQ(out[2].bits, 0x7f80);  // rounds up to infinity
  EXPECT_EQ(out[3].bits, 0x8000);
  EXPECT_TRUE(std::isnan(to_double(out[4])));
  EXPECT_TRUE(std::isnan(to_double(out[5])));
}

TEST(Copy, moves_every_byte) {
  ThreadPool pool(2);
  for (const std::int64_t count : kCounts) {
    const auto in = random_vector<float>(count, 1, 1);
    std::vector<float> out(in.size());
    copy(pool, out.data(), in.data(), in.size() * sizeof(float));
    EXPECT_TRUE(same_bits(out, in));
  }
}

}  // namespace
}  // namespace kintsugi::kernels::cpu
