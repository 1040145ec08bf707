#include "base/portable_math.hpp"

#include <bit>
#include <cstdint>

#include "base/assert.hpp"

namespace kintsugi {

namespace {

// 2 atanh(s) / s in powers of s^2.
constexpr double kAtanh[] = {2.0,        2.0 / 3.0,  2.0 / 5.0,  2.0 / 7.0,  2.0 / 9.0,  2.0 / 11.0,
                             2.0 / 13.0, 2.0 / 15.0, 2.0 / 17.0, 2.0 / 19.0, 2.0 / 21.0, 2.0 / 23.0};

// 1 / n!.
constexpr double kExp[] = {1.0,
                           1.0,
                           1.0 / 2.0,
                           1.0 / 6.0,
                           1.0 / 24.0,
                           1.0 / 120.0,
                           1.0 / 720.0,
                           1.0 / 5040.0,
                           1.0 / 40320.0,
                           1.0 / 362880.0,
                           1.0 / 3628800.0,
                           1.0 / 39916800.0,
                           1.0 / 479001600.0,
                           1.0 / 6227020800.0};

// ln 2 in two parts; the first has 20 trailing zero bits, so that its multiples by exponents are exact.
constexpr double kLn2High = 0x1.62e42fefa0000p-1, kLn2Low = 0x1.cf79abc9e3b3ap-40;

// B_2n / (2n (2n - 1)), n = 1...
constexpr double kStirling[] = {1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0, -691.0 / 360360.0};
constexpr double kHalfLogTwoPi = 0.91893853320467274178;

}  // namespace

// x = m * 2^e with m in [sqrt(1/2), sqrt(2)), ln m = 2 atanh((m - 1) / (m + 1)).
double portable_log(double x) {
  KINTSUGI_ASSERT_MSG(x >= 0x1p-1022 && x < 0x1p1023, "a logarithm of a normal positive number");
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1022;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFu) | 0x3FE0000000000000u);  // [1/2, 1)
  if (m < 0.70710678118654752440) {
    m *= 2.0;
    exponent -= 1;
  }
  const double s = (m - 1.0) / (m + 1.0);
  return s * polynomial(kAtanh, s * s) + exponent * 0.69314718055994530942;
}

// x = k ln 2 + r with |r| <= ln 2 / 2, e^x = 2^k e^r.
double portable_exp(double x) {
  KINTSUGI_ASSERT_MSG(x >= -700.0 && x <= 700.0, "an exponential within the range of double");
  const double scaled = x * 1.44269504088896340736;
  const auto k = static_cast<std::int64_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  const double r = (x - static_cast<double>(k) * kLn2High) - static_cast<double>(k) * kLn2Low;
  return polynomial(kExp, r) * std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
}

double portable_power(double x, double y) {
  return portable_exp(y * portable_log(x));
}

double portable_log_gamma(double x) {
  KINTSUGI_ASSERT(x > 0);
  double shift = 0;
  for (; x < 12.0; x += 1.0) shift += portable_log(x);
  const double inverse = 1.0 / x;
  return (x - 0.5) * portable_log(x) - x + kHalfLogTwoPi + inverse * polynomial(kStirling, inverse * inverse) - shift;
}

}  // namespace kintsugi
