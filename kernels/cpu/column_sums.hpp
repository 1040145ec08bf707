// Sums down the columns of a matrix: gradients of biases.
#pragma once

#include "kernels/cpu/functions.hpp"

namespace kintsugi::kernels::cpu {

// sums[c] (+)= in[0][c] + in[1][c] + ..., in row order, added to the old value when complete. in (rows, columns) T.
template <class T>
void column_sums(ThreadPool& pool, float* sums, const T* in, std::int64_t rows, std::int64_t columns, bool accumulate);

// out[r] = row, for all r: the bias from which a matrix product starts.
void repeat_row(float* out, const float* row, std::int64_t rows, std::int64_t columns, std::int64_t out_stride);

}  // namespace kintsugi::kernels::cpu
