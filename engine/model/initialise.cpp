#include "engine/model/initialise.hpp"

#include <algorithm>

#include "base/assert.hpp"
#include "base/digest.hpp"
#include "base/philox.hpp"

namespace kintsugi {

namespace {

// Elements [first, first + out.size()) of one parameter.
void initialise_parameter(const Parameter& parameter, std::uint64_t seed, std::int64_t first, std::span<float> out) {
  switch (parameter.initialisation) {
    case Initialisation::zeros: std::ranges::fill(out, 0.0f); return;
    case Initialisation::ones: std::ranges::fill(out, 1.0f); return;
    case Initialisation::normal: break;
  }
  const PhiloxKey key = philox_key(seed);
  const std::uint64_t name = digest_of(std::as_bytes(std::span(parameter.name))).low;
  const double deviation = static_cast<double>(parameter.standard_deviation);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t bits = philox_u64(key, name, static_cast<std::uint64_t>(first) + i);
    out[i] = static_cast<float>(deviation * standard_normal(bits));
  }
}

}  // namespace

void initialise_shard(const ModelLayout& layout, const Shard& shard, std::span<float> out) {
  KINTSUGI_ASSERT(static_cast<std::int64_t>(out.size()) <= shard.count);
  const ParameterGroup& group = layout.group(shard.group);
  const std::int64_t begin = shard.offset;
  const std::int64_t end = begin + static_cast<std::int64_t>(out.size());
  for (std::uint32_t i = 0; i < group.parameter_count; ++i) {
    const Parameter& parameter = layout.parameters()[group.first_parameter + i];
    const std::int64_t low = std::max(begin, parameter.offset);
    const std::int64_t high = std::min(end, parameter.offset + parameter.count());
    if (low >= high) continue;
    initialise_parameter(parameter, layout.config().seed, low - parameter.offset,
                         out.subspan(static_cast<std::size_t>(low - begin), static_cast<std::size_t>(high - low)));
  }
}

}  // namespace kintsugi
