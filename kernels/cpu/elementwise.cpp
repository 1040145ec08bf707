// fill, copy, convert, add: bounded by memory, so pieces are a few pages long and nothing else matters.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
// Highway's order: this header after foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/units.hpp"
#include "kernels/cpu/functions.hpp"
#include "kernels/cpu/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kintsugi::kernels::cpu::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kPieceElements = std::int64_t{1} << 16;

// body(begin, end) over pieces of [0, count).
template <class Body>
void in_pieces(ThreadPool& pool, std::int64_t count, const Body& body) {
  pool.run(ceil_div(count, kPieceElements), [&](std::int64_t piece) HWY_ATTR {
    const std::int64_t begin = piece * kPieceElements;
    body(begin, std::min(begin + kPieceElements, count));
  });
}

template <class T>
void fill_any(ThreadPool& pool, T* out, float value, std::int64_t count) {
  in_pieces(pool, count, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    const Float d;
    const FloatVector v = hn::Set(d, value);
    for_vectors(begin, end, [&](std::int64_t i, auto lanes) HWY_ATTR { store(d, v, out + i, lanes); });
  });
}

template <class To, class From>
void convert_any(ThreadPool& pool, To* out, const From* in, std::int64_t count) {
  in_pieces(pool, count, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    const Float d;
    for_vectors(begin, end,
                [&](std::int64_t i, auto lanes) HWY_ATTR { store(d, load(d, in + i, lanes), out + i, lanes); });
  });
}

template <class T>
void add_any(ThreadPool& pool, T* out, const T* a, const T* b, std::int64_t count) {
  in_pieces(pool, count, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    const Float d;
    for_vectors(begin, end, [&](std::int64_t i, auto lanes) HWY_ATTR {
      store(d, hn::Add(load(d, a + i, lanes), load(d, b + i, lanes)), out + i, lanes);
    });
  });
}

void fill_f32(ThreadPool& p, float* out, float v, std::int64_t n) {
  fill_any(p, out, v, n);
}
void fill_bf16(ThreadPool& p, bf16* out, float v, std::int64_t n) {
  fill_any(p, out, v, n);
}
void widen(ThreadPool& p, float* out, const bf16* in, std::int64_t n) {
  convert_any(p, out, in, n);
}
void narrow(ThreadPool& p, bf16* out, const float* in, std::int64_t n) {
  convert_any(p, out, in, n);
}
void add_f32(ThreadPool& p, float* out, const float* a, const float* b, std::int64_t n) {
  add_any(p, out, a, b, n);
}
void add_bf16(ThreadPool& p, bf16* out, const bf16* a, const bf16* b, std::int64_t n) {
  add_any(p, out, a, b, n);
}

}  // namespace
}  // namespace kintsugi::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kintsugi::kernels::cpu {

HWY_EXPORT(fill_f32);
HWY_EXPORT(fill_bf16);
HWY_EXPORT(widen);
HWY_EXPORT(narrow);
HWY_EXPORT(add_f32);
HWY_EXPORT(add_bf16);

template <class T>
void fill(ThreadPool& pool, T* out, float value, std::int64_t count) {
  if constexpr (std::is_same_v<T, float>)
    HWY_DYNAMIC_DISPATCH(fill_f32)(pool, out, value, count);
  else
    HWY_DYNAMIC_DISPATCH(fill_bf16)(pool, out, value, count);
}

void copy(ThreadPool& pool, void* out, const void* in, std::size_t bytes) {
  constexpr std::size_t kPieceBytes = 256 * kKiB;
  pool.run(static_cast<std::int64_t>((bytes + kPieceBytes - 1) / kPieceBytes), [&](std::int64_t piece) {
    const std::size_t begin = static_cast<std::size_t>(piece) * kPieceBytes;
    std::memcpy(static_cast<std::byte*>(out) + begin, static_cast<const std::byte*>(in) + begin,
                std::min(kPieceBytes, bytes - begin));
  });
}

template <class To, class From>
void convert(ThreadPool& pool, To* out, const From* in, std::int64_t count) {
  if constexpr (std::is_same_v<To, float>)
    HWY_DYNAMIC_DISPATCH(widen)(pool, out, in, count);
  else
    HWY_DYNAMIC_DISPATCH(narrow)(pool, out, in, count);
}

template <class T>
void add(ThreadPool& pool, T* out, const T* a, const T* b, std::int64_t count) {
  if constexpr (std::is_same_v<T, float>)
    HWY_DYNAMIC_DISPATCH(add_f32)(pool, out, a, b, count);
  else
    HWY_DYNAMIC_DISPATCH(add_bf16)(pool, out, a, b, count);
}

template void fill(ThreadPool&, float*, float, std::int64_t);
template void fill(ThreadPool&, bf16*, float, std::int64_t);
template void convert(ThreadPool&, float*, const bf16*, std::int64_t);
template void convert(ThreadPool&, bf16*, const float*, std::int64_t);
template void add(ThreadPool&, float*, const float*, const float*, std::int64_t);
template void add(ThreadPool&, bf16*, const bf16*, const bf16*, std::int64_t);

}  // namespace kintsugi::kernels::cpu
#endif
