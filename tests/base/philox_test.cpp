#include "base/philox.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace kintsugi {
namespace {

// Random123 1.14, tests/kat_vectors, "philox4x32 10".
TEST(Philox, gives_the_known_answers_of_random123) {
  EXPECT_EQ(philox({0, 0}, {0, 0, 0, 0}), (PhiloxBlock{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox({0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}),
            (PhiloxBlock{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox({0xa4093822u, 0x299f31d0u}, {0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}),
            (PhiloxBlock{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Philox, the_two_counters_of_a_draw_do_not_overlap) {
  EXPECT_NE(philox_u64(philox_key(1), 1, 0), philox_u64(philox_key(1), 0, 1));
  EXPECT_NE(philox_u64(philox_key(1), std::uint64_t{1} << 32, 0), philox_u64(philox_key(1), 0, 1));
}

struct Quantile {
  std::uint64_t bits;
  double value;
};

// By normal_quantiles.py, beside this file.
constexpr Quantile kQuantiles[] = {
    {0x0000000000000000u, -8.2923610758135955382},     {0x0000000000000800u, -8.1607078408585831755},
    {0x0000000000100000u, -7.4238105989044734522},     {0x0000000040000000u, -6.4439343818762375497},
    {0x0000010000000000u, -5.2947040846844008903},     {0x0004000000000000u, -3.8419306855016876899},
    {0x1000000000000000u, -1.5341205443525458603},     {0x1333333333333333u, -1.4395314709384558369},
    {0x1333333333334000u, -1.4395314709384542683},     {0x4000000000000000u, -0.67448975019608156852},
    {0x7FFFFFFFFFFFF800u, -1.3914582123358834611e-16}, {0x8000000000000000u, 1.3914582123358834611e-16},
    {0xC000000000000000u, 0.67448975019608191789},     {0xECCCCCCCCCCCC000u, 1.4395314709384550526},
    {0xECCCCCCCCCCCD000u, 1.4395314709384566212},      {0xFFFBFFFFFFFFFFFFu, 3.8419306855016876899},
    {0xFFFFFFFFBFFFFFFFu, 6.4439343818762375497},      {0xFFFFFFFFFFFFEFFFu, 8.0987842043543016312},
    {0x9E3779B97F4A7C15u, 0.30032138538999851184},     {0x3C6EF372FE94F82Au, -0.7190080576686002008},
    {0xDAA66D2C7DDF743Fu, 1.0541897158842018186},      {0x78DDE6E5FD29F054u, -0.069901687483767068793},
    {0x1715609F7C746C69u, -1.3397092549486554846},     {0xB54CDA58FBBEE87Eu, 0.54814530412944936877},
    {0x538454127B096493u, -0.45032537823970041336},    {0xF1BBCDCBFA53E0A8u, 1.5916819768299812172},
    {0x8FF34785799E5CBDu, 0.15681810647887814157},     {0x2E2AC13EF8E8D8D2u, -0.91407055189687354097},
    {0xCC623AF8783354E7u, 0.83582697731504496859},     {0x6A99B4B1F77DD0FCu, -0.21109168302405109646},
    {0x08D12E6B76C84D11u, -1.8191817413350106531},     {0xA708A824F612C926u, 0.39201339711575709464},
};

// AS 241 promises about one part in 1e16; a few roundings of double come on top.
TEST(StandardNormal, is_the_quantile_to_a_few_units_of_double) {
  for (const Quantile& q : kQuantiles) {
    EXPECT_NEAR(standard_normal(q.bits), q.value, 2e-15 * std::abs(q.value)) << std::hex << q.bits;
  }
}

TEST(StandardNormal, is_odd_in_its_bits) {
  for (const Quantile& q : kQuantiles) EXPECT_EQ(standard_normal(q.bits), -standard_normal(~q.bits));
}

TEST(StandardNormal, never_leaves_what_double_can_tell_apart) {
  EXPECT_LT(std::abs(standard_normal(0)), 8.3);
  EXPECT_LT(std::abs(standard_normal(~std::uint64_t{0})), 8.3);
}

// 2^18 draws: the bounds are five standard errors of each moment.
TEST(StandardNormal, has_the_moments_of_the_normal_distribution) {
  constexpr int kDraws = 1 << 18;
  double moment[5] = {};
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double x = standard_normal(philox_u64(philox_key(42), 7, i));
    for (int k = 1; k < 5; ++k) moment[k] += std::pow(x, k) / kDraws;
  }
  const double error = 5.0 / std::sqrt(kDraws);
  EXPECT_NEAR(moment[1], 0.0, error);
  EXPECT_NEAR(moment[2], 1.0, error * std::sqrt(2.0));
  EXPECT_NEAR(moment[3], 0.0, error * std::sqrt(15.0));
  EXPECT_NEAR(moment[4], 3.0, error * std::sqrt(96.0));
}

}  // namespace
}  // namespace kintsugi
