// Logarithm and exponential of our own: only + - * / and bit operations, so that their bits do not depend on a
// mathematical library, a compiler or a machine. What decides when a simulated event happens is computed with these.
#pragma once

#include <cstddef>

namespace kintsugi {

// ln(x) for normal positive x (asserted). Error under 4e-16 relative away from 1, absolute near it.
double portable_log(double x);
// e^x for x in [-700, 700] (asserted). Error under 1e-15 relative.
double portable_exp(double x);
// x^y for x > 0; asserts that the result is within e^-700 and e^700.
double portable_power(double x, double y);
// ln of the gamma function for x > 0 (Stirling's series, shifted upward). Error under 1e-12 relative.
double portable_log_gamma(double x);

// c[0] + c[1] x + ... by Horner's rule.
template <std::size_t N>
double polynomial(const double (&c)[N], double x) {
  double y = c[N - 1];
  for (std::size_t i = N - 1; i-- > 0;) y = y * x + c[i];
  return y;
}

}  // namespace kintsugi
