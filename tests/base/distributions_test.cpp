#include "base/distributions.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/portable_math.hpp"

namespace kintsugi {
namespace {

using Kind = Distribution::Kind;

TEST(PortableMath, agrees_with_the_library_to_a_few_units) {
  DrawStream stream(1, 1);
  for (int i = 0; i < 20'000; ++i) {
    const double x = (stream.unit() - 0.5) * 1390;
    EXPECT_NEAR(portable_exp(x) / std::exp(x), 1.0, 1e-15) << x;
    const double y = std::exp(x / 2);
    EXPECT_NEAR(portable_log(y), std::log(y), 4e-16 * std::max(1.0, std::abs(std::log(y)))) << y;
    const double z = stream.unit() * 60;
    EXPECT_NEAR(portable_log_gamma(z), std::lgamma(z), 1e-12 * std::max(1.0, std::abs(std::lgamma(z)))) << z;
  }
}

struct Moments {
  double mean = 0, variance = 0;
};

Moments moments_of(const Distribution& d, int count) {
  DrawStream stream(7, 3);
  double sum = 0, squares = 0;
  for (int i = 0; i < count; ++i) {
    const double x = draw(d, stream);
    sum += x;
    squares += x * x;
  }
  const double mean = sum / count;
  return {mean, squares / count - mean * mean};
}

// Five standard errors of 200,000 draws.
TEST(Distributions, have_the_mean_and_the_variance_of_their_formulas) {
  struct Case {
    Distribution d;
    double variance;
  };
  const double g1 = std::tgamma(1 + 1 / 0.7), g2 = std::tgamma(1 + 2 / 0.7);
  const Case cases[] = {{{Kind::fixed, 5}, 0},
                        {{Kind::exponential, 5}, 25},
                        {{Kind::weibull, 5, 0.7}, 25 * (g2 / (g1 * g1) - 1)},
                        {{Kind::gamma, 5, 0.5}, 50},
                        {{Kind::gamma, 5, 4}, 6.25},
                        {{Kind::log_normal, 5, 0.5}, 25 * (std::exp(0.25) - 1)},
                        {{Kind::empirical, 1, 1, {2, 4, 9}}, 26.0 / 3}};
  for (const Case& c : cases) {
    const Moments m = moments_of(c.d, 200'000);
    EXPECT_NEAR(m.mean, 5, 5 * std::sqrt(c.variance / 200'000) + 1e-9) << static_cast<int>(c.d.kind);
    EXPECT_NEAR(m.variance, c.variance, 0.06 * c.variance + 1e-9) << static_cast<int>(c.d.kind);
    EXPECT_EQ(c.d.expected(), 5);
  }
}

// Kept bits: another compiler or library must give the same.
TEST(Distributions, give_the_bits_that_are_kept) {
  std::uint64_t hash = 0;
  for (const Kind kind : {Kind::exponential, Kind::weibull, Kind::gamma, Kind::log_normal}) {
    DrawStream stream(42, 9);
    for (int i = 0; i < 1000; ++i) {
      hash = hash * 0x9E3779B97F4A7C15u + std::bit_cast<std::uint64_t>(draw({kind, 3.5, 0.8}, stream));
    }
  }
  EXPECT_EQ(hash, 11591827206464467344u);
}

TEST(Distributions, an_extra_draw_of_one_stream_shifts_no_other) {
  DrawStream a(1, 1), b(1, 2), again(1, 2);
  a.bits();
  EXPECT_EQ(b.bits(), again.bits());
  EXPECT_NE(DrawStream(1, 1).bits(), DrawStream(2, 1).bits());
}

}  // namespace
}  // namespace kintsugi
