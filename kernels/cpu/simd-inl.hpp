// Loads and stores that hide the activation's dtype from kernels. Include it inside a foreach_target translation unit,
// after <hwy/highway.h>; like Highway's own -inl headers it is compiled once a target.
#if defined(KINTSUGI_KERNELS_CPU_SIMD_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef KINTSUGI_KERNELS_CPU_SIMD_INL_HPP
#undef KINTSUGI_KERNELS_CPU_SIMD_INL_HPP
#else
#define KINTSUGI_KERNELS_CPU_SIMD_INL_HPP
#endif

#include <hwy/highway.h>

#include "kernels/cpu/functions.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Float = hn::ScalableTag<float>;
using FloatVector = hn::Vec<Float>;

HWY_INLINE FloatVector load(Float d, const float* from) {
  return hn::LoadU(d, from);
}

HWY_INLINE FloatVector load(Float d, const bf16* from) {
  const hn::Rebind<std::uint16_t, Float> half;
  const hn::RebindToUnsigned<Float> bits;
  const auto raw = hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, raw)));
}

HWY_INLINE void store(Float d, FloatVector v, float* to) {
  hn::StoreU(v, d, to);
}

// Round to nearest even in integers, the same on every ISA (Highway 1.0's DemoteTo truncates). A NaN stays a NaN: its
// payload is cut and the quiet bit set.
HWY_INLINE void store(Float, FloatVector v, bf16* to) {
  const hn::Rebind<std::uint16_t, Float> half;
  const hn::RebindToUnsigned<Float> bits;
  const hn::RebindToSigned<Float> lanes;
  const auto raw = hn::BitCast(bits, v);
  const auto upper = hn::ShiftRight<16>(raw);
  const auto even = hn::And(upper, hn::Set(bits, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(raw, hn::Add(even, hn::Set(bits, 0x7fff))));
  const auto quiet = hn::Or(upper, hn::Set(bits, 0x40));
  const auto nan = hn::RebindMask(bits, hn::Not(hn::Eq(v, v)));
  const auto chosen = hn::BitCast(lanes, hn::IfThenElse(nan, quiet, rounded));
  hn::StoreU(hn::DemoteTo(half, chosen), half, reinterpret_cast<std::uint16_t*>(to));
}

// The first n < Lanes(d) elements; the rest are zero.
template <class T>
HWY_INLINE FloatVector load_first(Float d, const T* from, std::size_t n) {
  HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(float)] = {};
  for (std::size_t i = 0; i < n; ++i) lanes[i] = from[i];
  return load(d, lanes);
}

template <class T>
HWY_INLINE void store_first(Float d, FloatVector v, T* to, std::size_t n) {
  HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(float)] = {};
  store(d, v, lanes);
  for (std::size_t i = 0; i < n; ++i) to[i] = lanes[i];
}

HWY_INLINE float load_one(const float* from) {
  return *from;
}
HWY_INLINE float load_one(const bf16* from) {
  return hn::GetLane(load_first(Float{}, from, 1));
}

// How many lanes of a vector count: a loop's body is written once and compiled for whole vectors and for the rest.
struct Whole {};
struct Part {
  std::size_t n;
};

template <class T>
HWY_INLINE FloatVector load(Float d, const T* from, Whole) {
  return load(d, from);
}
template <class T>
HWY_INLINE FloatVector load(Float d, const T* from, Part part) {
  return load_first(d, from, part.n);
}
template <class T>
HWY_INLINE void store(Float d, FloatVector v, T* to, Whole) {
  store(d, v, to);
}
template <class T>
HWY_INLINE void store(Float d, FloatVector v, T* to, Part part) {
  store_first(d, v, to, part.n);
}

// body(i, Whole or Part) for every vector of [begin, end). Lambdas given here carry HWY_ATTR.
template <class Body>
HWY_INLINE void for_vectors(std::int64_t begin, std::int64_t end, const Body& body) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Float{}));
  std::int64_t i = begin;
  for (; i + lanes <= end; i += lanes) body(i, Whole{});
  if (i < end) body(i, Part{static_cast<std::size_t>(end - i)});
}

}  // namespace kintsugi::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
