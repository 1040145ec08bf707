// What the halves of CpuOps share: from views to typed pointers. Included by kernels/cpu/cpu_ops_*.cpp alone.
#pragma once

#include <type_traits>
#include <utility>

#include "base/assert.hpp"
#include "kernels/cpu/cpu_ops.hpp"
#include "kernels/cpu/cpu_stream.hpp"
#include "kernels/cpu/functions.hpp"

namespace kintsugi::kernels::cpu {

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DType::float32;
  else if constexpr (std::is_same_v<T, bf16>)
    return DType::bfloat16;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DType::int32;
  else
    return DType::byte;
}

template <class T>
T* CpuOps::at(const View& view) const {
  if (view.empty()) return nullptr;
  KINTSUGI_ASSERT_MSG(view.dtype == dtype_of<std::remove_cv_t<T>>(), "a view has another dtype than the op takes");
  return reinterpret_cast<T*>(addresses_->resolve(view));
}

// use(float{}) or use(bf16{}), as the activations' dtype says.
template <class Use>
void with_type(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::float32: return use(float{});
    case DType::bfloat16: return use(bf16{});
    case DType::int32:
    case DType::byte: break;
  }
  KINTSUGI_ASSERT_MSG(false, "activations are float32 or bfloat16");
}

template <class Kernel>
void launch(Stream& stream, const char* name, Kernel kernel) {
  static_cast<CpuStream&>(stream).launch(name, std::move(kernel));
}

inline void check(bool shapes_agree) {
  KINTSUGI_ASSERT_MSG(shapes_agree, "the views do not have the op's shape");
}
inline void check_whole_rows(const View& view, std::int64_t width) {
  check(width > 0 && view.count % width == 0);
}
// Absent, or of `count` elements.
inline void check_optional(const View& view, std::int64_t count) {
  check(view.empty() || view.count == count);
}

}  // namespace kintsugi::kernels::cpu
