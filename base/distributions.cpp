#include "base/distributions.hpp"

#include <cmath>
#include <numeric>

#include "base/assert.hpp"
#include "base/portable_math.hpp"

namespace kintsugi {

namespace {

// Of mean `shape`, for shape >= 1. sqrt is correctly rounded by IEEE 754.
double gamma_variate(double shape, DrawStream& stream) {
  const double d = shape - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double x = stream.normal();
    const double t = 1.0 + c * x;
    if (t <= 0.0) continue;
    const double v = t * t * t;
    const double u = stream.unit();
    if (portable_log(u) < 0.5 * x * x + d - d * v + d * portable_log(v)) return d * v;
  }
}

}  // namespace

double Distribution::expected() const {
  if (kind != Kind::empirical) return mean;
  KINTSUGI_ASSERT(!values.empty());
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double draw(const Distribution& d, DrawStream& stream) {
  KINTSUGI_ASSERT(d.mean > 0 && d.shape > 0);
  switch (d.kind) {
    case Distribution::Kind::fixed: return d.mean;
    case Distribution::Kind::exponential: return -d.mean * portable_log(stream.unit());
    case Distribution::Kind::weibull: {
      const double scale = d.mean / portable_exp(portable_log_gamma(1.0 + 1.0 / d.shape));
      return scale * portable_power(-portable_log(stream.unit()), 1.0 / d.shape);
    }
    case Distribution::Kind::gamma: {
      if (d.shape >= 1.0) return d.mean / d.shape * gamma_variate(d.shape, stream);
      const double boost = portable_power(stream.unit(), 1.0 / d.shape);
      return d.mean / d.shape * gamma_variate(d.shape + 1.0, stream) * boost;
    }
    case Distribution::Kind::log_normal:
      return d.mean * portable_exp(d.shape * stream.normal() - 0.5 * d.shape * d.shape);
    case Distribution::Kind::empirical:
      KINTSUGI_ASSERT(!d.values.empty());
      return d.values[stream.below(d.values.size())];
  }
  KINTSUGI_UNREACHABLE();
}

}  // namespace kintsugi
