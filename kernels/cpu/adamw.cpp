// AdamW (Loshchilov and Hutter 2019) as the written sequence of kernels/ops.hpp: each operation rounded once, none
// fused, so that every ISA and every holder of a shard gets the same bits. One pass over memory: a block is updated,
// published and hashed while it lies in the cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw.cpp"
#include <hwy/foreach_target.h>
// Highway's order: this header after foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/digest.hpp"
#include "kernels/cpu/functions.hpp"
#include "kernels/cpu/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {
namespace {

// Elements [begin, end), all with decay or all without.
template <bool kPublish, bool kDecay, class Published>
HWY_INLINE void update_run(const AdamwShard<Published>& s, std::int64_t begin, std::int64_t end) {
  const Float d;
  const AdamwScalars& a = s.scalars;
  const FloatVector clip = hn::Set(d, a.clip_scale), rate = hn::Set(d, a.learning_rate);
  const FloatVector beta1 = hn::Set(d, a.beta1), rest1 = hn::Set(d, 1.0f - a.beta1);
  const FloatVector beta2 = hn::Set(d, a.beta2), rest2 = hn::Set(d, 1.0f - a.beta2);
  const FloatVector correction1 = hn::Set(d, a.bias_correction1), correction2 = hn::Set(d, a.bias_correction2);
  const FloatVector epsilon = hn::Set(d, a.epsilon), weight_decay = hn::Set(d, a.weight_decay);
  for_vectors(begin, end, [&](std::int64_t i, auto lanes) HWY_ATTR {
    const FloatVector g = hn::Mul(load(d, s.gradient + i, lanes), clip);
    const FloatVector m = hn::Add(hn::Mul(beta1, load(d, s.moment1 + i, lanes)), hn::Mul(rest1, g));
    const FloatVector v = hn::Add(hn::Mul(beta2, load(d, s.moment2 + i, lanes)), hn::Mul(rest2, hn::Mul(g, g)));
    const FloatVector old = load(d, s.master + i, lanes);
    FloatVector u = hn::Div(hn::Div(m, correction1), hn::Add(hn::Sqrt(hn::Div(v, correction2)), epsilon));
    if constexpr (kDecay) u = hn::Add(u, hn::Mul(weight_decay, old));
    const FloatVector w = hn::Sub(old, hn::Mul(rate, u));
    store(d, m, s.moment1 + i, lanes);
    store(d, v, s.moment2 + i, lanes);
    store(d, w, s.master + i, lanes);
    if constexpr (kPublish) store(d, w, s.published + i, lanes);
  });
}

// Elements [begin, end), cut where decay begins and ends.
template <bool kPublish, class Published>
void update_cut(const AdamwShard<Published>& s, std::int64_t begin, std::int64_t end) {
  for (const DecayRange& range : s.decay) {
    if (range.end <= begin) continue;
    if (range.begin >= end) break;
    const std::int64_t first = std::max(range.begin, begin), last = std::min(range.end, end);
    update_run<kPublish, false>(s, begin, first);
    update_run<kPublish, true>(s, first, last);
    begin = last;
  }
  update_run<kPublish, false>(s, begin, end);
}

template <class Published>
void update_any(const AdamwShard<Published>& s, std::int64_t begin, std::int64_t end) {
  if (s.published != nullptr)
    update_cut<true>(s, begin, end);
  else
    update_cut<false>(s, begin, end);
}

void update_f32(const AdamwShard<float>& s, std::int64_t begin, std::int64_t end) {
  update_any(s, begin, end);
}
void update_bf16(const AdamwShard<bf16>& s, std::int64_t begin, std::int64_t end) {
  update_any(s, begin, end);
}

}  // namespace
}  // namespace kintsugi::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kintsugi::kernels::cpu {

HWY_EXPORT(update_f32);
HWY_EXPORT(update_bf16);

namespace {

constexpr std::int64_t kDigestBlock = 4096;  // elements; part of the digest's definition

// visit(begin, end) before a block is hashed.
template <class Visit>
void hash_state(std::byte* digest, const float* master, const float* moment1, const float* moment2, std::int64_t count,
                const Visit& visit) {
  Hasher hasher;
  for (std::int64_t begin = 0; begin < count; begin += kDigestBlock) {
    const std::int64_t end = std::min(begin + kDigestBlock, count);
    visit(begin, end);
    const std::size_t bytes = static_cast<std::size_t>(end - begin) * sizeof(float);
    hasher.update(master + begin, bytes);
    hasher.update(moment1 + begin, bytes);
    hasher.update(moment2 + begin, bytes);
  }
  const Digest result = hasher.finish();
  std::memcpy(digest, &result.high, 8);
  std::memcpy(digest + 8, &result.low, 8);
}

}  // namespace

template <class Published>
void adamw(ThreadPool& pool, std::span<const AdamwShard<Published>> shards) {
  pool.run(static_cast<std::int64_t>(shards.size()), [&](std::int64_t i) {
    const AdamwShard<Published>& s = shards[static_cast<std::size_t>(i)];
    hash_state(s.digest, s.master, s.moment1, s.moment2, s.count, [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<Published, float>)
        HWY_DYNAMIC_DISPATCH(update_f32)(s, begin, end);
      else
        HWY_DYNAMIC_DISPATCH(update_bf16)(s, begin, end);
    });
  });
}

template void adamw(ThreadPool&, std::span<const AdamwShard<float>>);
template void adamw(ThreadPool&, std::span<const AdamwShard<bf16>>);

void state_digest(ThreadPool&, std::byte* digest, const float* master, const float* moment1, const float* moment2,
                  std::int64_t count) {
  hash_state(digest, master, moment1, moment2, count, [](std::int64_t, std::int64_t) {});
}

}  // namespace kintsugi::kernels::cpu
#endif
