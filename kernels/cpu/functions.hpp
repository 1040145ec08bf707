// The CPU kernels as free functions on raw pointers: what CpuOps calls, and what tests and benchmarks may call.
//
// One idea a file (kernels/cpu/<name>.cpp). Arguments and orders of addition are those of kernels/ops.hpp. Every
// function returns when its work is done, cuts it into pieces that are functions of the shape alone, and gives them to
// `pool.run`; the thread that calls was prepared by prepare_compute_thread(). T is float or bf16 (explicitly
// instantiated for both); arithmetic is float32 or wider, rounded to T once, when an output is stored. Pointers may be unaligned to
// vectors, `nullptr` stands for "absent", and buffers do not overlap unless kernels/ops.hpp allows it.
#pragma once

#include <hwy/base.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/thread_pool.hpp"
#include "kernels/ops.hpp"

namespace kintsugi::kernels::cpu {

// Storage only: 16 bits, the upper half of a float32. kernels/cpu/simd-inl.hpp loads it and stores it rounded.
using bf16 = hwy::bfloat16_t;

// --- elementwise.cpp -------------------------------------------------------------------------------------------------
template <class T>
void fill(ThreadPool& pool, T* out, float value, std::int64_t count);
void copy(ThreadPool& pool, void* out, const void* in, std::size_t bytes);
template <class To, class From>
void convert(ThreadPool& pool, To* out, const From* in, std::int64_t count);  // float <-> bf16
template <class T>
void add(ThreadPool& pool, T* out, const T* a, const T* b, std::int64_t count);  // out may be a or b

// --- embedding.cpp ---------------------------------------------------------------------------------------------------
// table (vocabulary, width) T, positions (length at least, width) T or nullptr. A token outside [0, vocabulary) is a bug.
template <class T>
void embedding_forward(ThreadPool& pool, T* out, const std::int32_t* tokens, const T* table, const T* positions,
                       std::int64_t rows, std::int64_t vocabulary, std::int64_t width, std::int64_t length);
// grad_table (vocabulary, width) f32, grad_positions (position_rows, width) f32 or nullptr, position_rows >= length.
// `accumulate` false: every element of both is stored, untouched rows as zero.
template <class T>
void embedding_backward(ThreadPool& pool, float* grad_table, float* grad_positions, const T* grad_out,
                        const std::int32_t* tokens, std::int64_t rows, std::int64_t vocabulary, std::int64_t width,
                        std::int64_t length, std::int64_t position_rows, bool accumulate);

// --- layernorm.cpp, rmsnorm.cpp --------------------------------------------------------------------------------------
template <class T>
void layernorm_forward(ThreadPool& pool, T* out, float* mean, float* rstd, const T* in, const T* weight, const T* bias,
                       std::int64_t rows, std::int64_t width, float epsilon);
template <class T>
void layernorm_backward(ThreadPool& pool, T* grad_in, float* grad_weight, float* grad_bias, const T* grad_out,
                        const T* in, const float* mean, const float* rstd, const T* weight, std::int64_t rows,
                        std::int64_t width, bool accumulate);
template <class T>
void rmsnorm_forward(ThreadPool& pool, T* out, float* rstd, const T* in, const T* weight, std::int64_t rows,
                     std::int64_t width, float epsilon);
template <class T>
void rmsnorm_backward(ThreadPool& pool, T* grad_in, float* grad_weight, const T* grad_out, const T* in,
                      const float* rstd, const T* weight, std::int64_t rows, std::int64_t width, bool accumulate);

// --- linear.cpp ------------------------------------------------------------------------------------------------------
template <class Out, class T>  // Out: T or float
void linear_forward(ThreadPool& pool, Out* out, const T* in, const T* weight, const T* bias, LinearShape shape);
template <class T>
void linear_backward_input(ThreadPool& pool, T* grad_in, const T* grad_out, const T* weight, LinearShape shape);
template <class T>
void linear_backward_weight(ThreadPool& pool, float* grad_weight, float* grad_bias, const T* grad_out, const T* in,
                            LinearShape shape, bool accumulate);

// --- gelu.cpp, swiglu.cpp --------------------------------------------------------------------------------------------
template <class T>
void gelu_forward(ThreadPool& pool, T* out, const T* in, std::int64_t count);
template <class T>
void gelu_backward(ThreadPool& pool, T* grad_in, const T* grad_out, const T* in, std::int64_t count);
template <class T>
void swiglu_forward(ThreadPool& pool, T* out, const T* in, std::int64_t rows, std::int64_t hidden);
template <class T>
void swiglu_backward(ThreadPool& pool, T* grad_in, const T* grad_out, const T* in, std::int64_t rows,
                     std::int64_t hidden);

// --- rotary.cpp, attention.cpp ---------------------------------------------------------------------------------------
// Row r of x starts at x + r * stride.
template <class T>
void rotary(ThreadPool& pool, T* x, std::int64_t stride, std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
            std::int64_t length, float theta, bool inverse);
template <class T>
void attention_forward(ThreadPool& pool, T* out, float* log_sum_exp, const T* q, const T* k, const T* v,
                       AttentionShape shape);
// grad_out has the stride of out.
template <class T>
void attention_backward(ThreadPool& pool, T* grad_q, T* grad_k, T* grad_v, const T* grad_out, const T* out,
                        const float* log_sum_exp, const T* q, const T* k, const T* v, AttentionShape shape);

// --- cross_entropy.cpp -----------------------------------------------------------------------------------------------
template <class T>
void cross_entropy(ThreadPool& pool, float* losses, T* logits, const std::int32_t* targets, std::int64_t rows,
                   std::int64_t vocabulary, float scale);
template <class T>
void cross_entropy_forward(ThreadPool& pool, float* losses, const T* logits, const std::int32_t* targets,
                           std::int64_t rows, std::int64_t vocabulary);

// --- sums.cpp --------------------------------------------------------------------------------------------------------
void sum(ThreadPool& pool, float* out, const float* in, std::int64_t count);
void squared_norms(ThreadPool& pool, double* out, std::span<const std::span<const float>> in);  // one out for each
// merges[i]: how many times the two topmost partial sums are added after node i was pushed (LaneTree::merges_after).
void tree_sum(ThreadPool& pool, float* out, std::span<const float* const> nodes, std::span<const std::uint32_t> merges,
              std::int64_t count);

// --- adamw.cpp -------------------------------------------------------------------------------------------------------
template <class Published>  // float or bf16
struct AdamwShard {
  float* master;
  float* moment1;
  float* moment2;
  const float* gradient;
  Published* published;  // may be null
  std::int64_t count;
  std::span<const DecayRange> decay;  // ascending, disjoint
  AdamwScalars scalars;
  std::byte* digest;  // 16 bytes
};
// A shard is the work of one thread: its digest is a chain over its blocks.
template <class Published>
void adamw(ThreadPool& pool, std::span<const AdamwShard<Published>> shards);
void state_digest(ThreadPool& pool, std::byte* digest, const float* master, const float* moment1, const float* moment2,
                  std::int64_t count);

}  // namespace kintsugi::kernels::cpu
