#include <type_traits>
#include <vector>

#include "kernels/cpu/matmul.hpp"

namespace kintsugi::kernels::cpu {

namespace {

ThreadPool& this_thread_alone() {
  thread_local ThreadPool pool(1);
  return pool;
}

// op(x) is (rows, columns); `storage` keeps what the result points to.
Operand<float> widen(std::vector<float>& storage, const Operand<bf16>& x, std::int64_t rows, std::int64_t columns) {
  const std::int64_t stored_rows = x.transposed ? columns : rows, stored_columns = x.transposed ? rows : columns;
  storage.resize(static_cast<std::size_t>(stored_rows * stored_columns));
  for (std::int64_t r = 0; r < stored_rows; ++r) {
    convert(this_thread_alone(), storage.data() + r * stored_columns, x.data + r * x.stride, stored_columns);
  }
  return {storage.data(), stored_columns, x.transposed};
}

template <class Out>
void multiply_any(Out* out, const Operand<bf16>& a, const Operand<bf16>& b, const bf16* bias, bool accumulate,
                  PanelShape shape) {
  thread_local std::vector<float> wide_a, wide_b, wide_bias, wide_out;
  const Operand<float> left = widen(wide_a, a, shape.rows, shape.depth);
  const Operand<float> right = widen(wide_b, b, shape.depth, shape.columns);
  const float* start = nullptr;
  if (bias != nullptr) start = widen(wide_bias, {bias, shape.columns, false}, 1, shape.columns).data;
  if constexpr (std::is_same_v<Out, float>) {
    multiply(out, left, right, start, accumulate, shape);
  } else {
    KINTSUGI_ASSERT_MSG(!accumulate, "only float32 gradients accumulate");
    wide_out.resize(static_cast<std::size_t>(shape.rows * shape.columns));
    multiply(wide_out.data(), left, right, start, false, {shape.rows, shape.columns, shape.depth, shape.columns});
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      convert(this_thread_alone(), out + r * shape.out_stride, wide_out.data() + r * shape.columns, shape.columns);
    }
  }
}

}  // namespace

void multiply_widened(float* out, Operand<bf16> a, Operand<bf16> b, const bf16* bias, bool accumulate,
                      PanelShape shape) {
  multiply_any(out, a, b, bias, accumulate, shape);
}

void multiply_widened(bf16* out, Operand<bf16> a, Operand<bf16> b, const bf16* bias, bool accumulate,
                      PanelShape shape) {
  multiply_any(out, a, b, bias, accumulate, shape);
}

}  // namespace kintsugi::kernels::cpu
