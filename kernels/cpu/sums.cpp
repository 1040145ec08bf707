// Sums whose order is written down (kernels/ops.hpp), so that they are the same on every ISA: no fused multiply-add,
// sixteen running sums whatever the width of a vector.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sums.cpp"
#include <hwy/foreach_target.h>
// Highway's order: this header after foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "base/units.hpp"
#include "kernels/cpu/functions.hpp"
#include "kernels/cpu/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {
namespace {

constexpr std::size_t kRunning = 16;
using Double = hn::CappedTag<double, kRunning>;
constexpr std::size_t kVectors = kRunning / hn::MaxLanes(Double{});

// value(x) is added for every element. Zeros that pad the last group change nothing: a running sum is never -0.
template <class Value>
HWY_INLINE double sum_of(const float* in, std::int64_t count, const Value& value) {
  const Double d;
  const hn::Rebind<float, Double> half;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Double> running[kVectors];
  for (auto& r : running) r = hn::Zero(d);
  const auto add_group = [&](const float* group) HWY_ATTR {
    for (std::size_t v = 0; v < kVectors; ++v) {
      running[v] = hn::Add(running[v], value(hn::PromoteTo(d, hn::LoadU(half, group + v * lanes))));
    }
  };
  const std::int64_t whole = count / static_cast<std::int64_t>(kRunning) * static_cast<std::int64_t>(kRunning);
  for (std::int64_t i = 0; i < whole; i += static_cast<std::int64_t>(kRunning)) add_group(in + i);
  if (whole < count) {
    float last[kRunning] = {};
    std::memcpy(last, in + whole, static_cast<std::size_t>(count - whole) * sizeof(float));
    add_group(last);
  }
  double sums[kRunning];
  for (std::size_t v = 0; v < kVectors; ++v) hn::StoreU(running[v], d, sums + v * lanes);
  for (std::size_t width = kRunning / 2; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) sums[i] += sums[i + width];
  }
  return sums[0];
}

double plain_sum(const float* in, std::int64_t count) {
  return sum_of(in, count, [](auto x) HWY_ATTR { return x; });
}
double square_sum(const float* in, std::int64_t count) {
  return sum_of(in, count, [](auto x) HWY_ATTR { return hn::Mul(x, x); });
}

// left + right, elementwise; out may be either.
HWY_INLINE void add_block(float* out, const float* left, const float* right, std::int64_t n) {
  const Float d;
  for_vectors(0, n, [&](std::int64_t i, auto lanes) HWY_ATTR {
    store(d, hn::Add(load(d, left + i, lanes), load(d, right + i, lanes)), out + i, lanes);
  });
}

// A block of the root. Partial sums are a stack, as in LaneTree::merges_after; those not yet added lie where they came
// from. The last addition alone writes `out`, after every node's block was read, so out may be a node.
void tree_sum_block(float* out, const float* const* nodes, const std::uint32_t* merges, std::size_t count,
                    std::int64_t offset, std::int64_t n) {
  constexpr std::int64_t kBlock = 512;  // elements: a stack of a few blocks stays in the first cache
  constexpr std::size_t kDepth = 34;    // > log2(2^32) + 1
  alignas(64) float partial[kDepth][kBlock];
  for (std::int64_t begin = offset; begin < offset + n; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, offset + n - begin);
    const float* stack[kDepth];
    std::size_t depth = 0;
    for (std::size_t i = 0; i < count; ++i) {
      stack[depth++] = nodes[i] + begin;
      for (std::uint32_t m = 0; m < merges[i]; ++m) {
        --depth;
        const bool is_root = i + 1 == count && m + 1 == merges[i];
        float* const to = is_root ? out + begin : partial[depth - 1];
        add_block(to, stack[depth - 1], stack[depth], length);
        stack[depth - 1] = to;
      }
    }
    if (count == 1 && out != nodes[0]) std::memcpy(out + begin, nodes[0] + begin, length * sizeof(float));
  }
}

}  // namespace
}  // namespace kintsugi::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kintsugi::kernels::cpu {

HWY_EXPORT(plain_sum);
HWY_EXPORT(square_sum);
HWY_EXPORT(tree_sum_block);

void sum(ThreadPool&, float* out, const float* in, std::int64_t count) {
  *out = static_cast<float>(HWY_DYNAMIC_DISPATCH(plain_sum)(in, count));
}

void squared_norms(ThreadPool& pool, double* out, std::span<const std::span<const float>> in) {
  pool.run(static_cast<std::int64_t>(in.size()), [&](std::int64_t i) {
    const std::span<const float> run = in[static_cast<std::size_t>(i)];
    out[i] = HWY_DYNAMIC_DISPATCH(square_sum)(run.data(), static_cast<std::int64_t>(run.size()));
  });
}

void tree_sum(ThreadPool& pool, float* out, std::span<const float* const> nodes, std::span<const std::uint32_t> merges,
              std::int64_t count) {
  KINTSUGI_ASSERT(!nodes.empty() && nodes.size() == merges.size());
  constexpr std::int64_t kPiece = std::int64_t{1} << 15;
  pool.run(ceil_div(count, kPiece), [&](std::int64_t piece) {
    const std::int64_t offset = piece * kPiece;
    HWY_DYNAMIC_DISPATCH(tree_sum_block)
    (out, nodes.data(), merges.data(), nodes.size(), offset, std::min(kPiece, count - offset));
  });
}

}  // namespace kintsugi::kernels::cpu
#endif
