// One panel of a matrix product, computed by the calling thread alone: oneDNN (2.6; Intel 2016-2022) with its own
// threads off. The dimension that is summed over is never cut, so a panel's bits are a function of its shape.
#pragma once

#include <cstdint>

#include "kernels/cpu/functions.hpp"

namespace kintsugi::kernels::cpu {

// A row-major matrix, or its transpose when `transposed`: op(X)[i][j] is data[i * stride + j], or data[j * stride + i].
template <class T>
struct Operand {
  const T* data = nullptr;
  std::int64_t stride = 0;
  bool transposed = false;
};

struct PanelShape {
  std::int64_t rows = 0, columns = 0, depth = 0;
  std::int64_t out_stride = 0;
};

// out (rows, columns) = op(a) (rows, depth) * op(b) (depth, columns) + start, where `start` is the old out when
// `accumulate`, else bias (columns) repeated in every row, else zero. Sums are float32.
void multiply(float* out, Operand<float> a, Operand<float> b, const float* bias, bool accumulate, PanelShape shape);
void multiply(float* out, Operand<bf16> a, Operand<bf16> b, const bf16* bias, bool accumulate, PanelShape shape);
void multiply(bf16* out, Operand<bf16> a, Operand<bf16> b, const bf16* bias, bool accumulate, PanelShape shape);

// The bfloat16 products where the ISA has none (oneDNN asks for AVX-512): operands widened, multiplied in float32.
void multiply_widened(float* out, Operand<bf16> a, Operand<bf16> b, const bf16* bias, bool accumulate,
                      PanelShape shape);
void multiply_widened(bf16* out, Operand<bf16> a, Operand<bf16> b, const bf16* bias, bool accumulate, PanelShape shape);

}  // namespace kintsugi::kernels::cpu
