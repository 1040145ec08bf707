// CpuOps: rotary positions, attention and the loss.
#include "kernels/cpu/cpu_ops-inl.hpp"

namespace kintsugi::kernels::cpu {

namespace {

// Does `view` reach the last element of `rows` rows of `columns`, `stride` apart?
void check_strided(const View& view, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  check(stride >= columns && view.count >= (rows - 1) * stride + columns);
}

void check_attention(const View& out, const View& log_sum_exp, const View& q, const View& k, const View& v,
                     const AttentionShape& s) {
  check(s.sequences > 0 && s.length > 0 && s.head_dim > 0 && s.kv_heads > 0 && s.heads % s.kv_heads == 0);
  const std::int64_t rows = s.sequences * s.length;
  check_strided(q, rows, s.heads * s.head_dim, s.q_stride);
  check_strided(k, rows, s.kv_heads * s.head_dim, s.kv_stride);
  check_strided(v, rows, s.kv_heads * s.head_dim, s.kv_stride);
  check_strided(out, rows, s.heads * s.head_dim, s.out_stride);
  check(log_sum_exp.count == rows * s.heads);
}

}  // namespace

void CpuOps::rotary(Stream& stream, StridedView x, std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
                    std::int64_t length, float theta, bool inverse) {
  check(length > 0 && rows % length == 0 && head_dim % 2 == 0);
  check_strided(x.base, rows, heads * head_dim, x.stride);
  with_type(x.base.dtype, [&]<class T>(T) {
    launch(stream, "rotary",
           [data = at<T>(x.base), stride = x.stride, rows, heads, head_dim, length, theta, inverse](ThreadPool& pool) {
             cpu::rotary(pool, data, stride, rows, heads, head_dim, length, theta, inverse);
           });
  });
}

void CpuOps::attention_forward(Stream& stream, View out, View log_sum_exp, View q, View k, View v,
                               AttentionShape shape) {
  check_attention(out, log_sum_exp, q, k, v, shape);
  with_type(q.dtype, [&]<class T>(T) {
    launch(stream, "attention_forward",
           [out = at<T>(out), log_sum_exp = at<float>(log_sum_exp), q = at<const T>(q), k = at<const T>(k),
            v = at<const T>(v),
            shape](ThreadPool& pool) { cpu::attention_forward(pool, out, log_sum_exp, q, k, v, shape); });
  });
}

void CpuOps::attention_backward(Stream& stream, View grad_q, View grad_k, View grad_v, View grad_out, View out,
                                View log_sum_exp, View q, View k, View v, AttentionShape shape) {
  check_attention(out, log_sum_exp, q, k, v, shape);
  check_attention(grad_out, log_sum_exp, grad_q, grad_k, grad_v, shape);
  with_type(q.dtype, [&]<class T>(T) {
    launch(stream, "attention_backward",
           [grad_q = at<T>(grad_q), grad_k = at<T>(grad_k), grad_v = at<T>(grad_v), grad_out = at<const T>(grad_out),
            out = at<const T>(out), log_sum_exp = at<const float>(log_sum_exp), q = at<const T>(q), k = at<const T>(k),
            v = at<const T>(v), shape](ThreadPool& pool) {
             cpu::attention_backward(pool, grad_q, grad_k, grad_v, grad_out, out, log_sum_exp, q, k, v, shape);
           });
  });
}

void CpuOps::cross_entropy(Stream& stream, View losses, View logits, View targets, std::int64_t vocabulary,
                           float scale) {
  check(losses.count == targets.count && logits.count == targets.count * vocabulary);
  with_type(logits.dtype, [&]<class T>(T) {
    launch(stream, "cross_entropy",
           [losses = at<float>(losses), logits = at<T>(logits), targets = at<const std::int32_t>(targets),
            rows = targets.count, vocabulary,
            scale](ThreadPool& pool) { cpu::cross_entropy(pool, losses, logits, targets, rows, vocabulary, scale); });
  });
}

void CpuOps::cross_entropy_forward(Stream& stream, View losses, View logits, View targets, std::int64_t vocabulary) {
  check(losses.count == targets.count && logits.count == targets.count * vocabulary);
  with_type(logits.dtype, [&]<class T>(T) {
    launch(stream, "cross_entropy_forward",
           [losses = at<float>(losses), logits = at<const T>(logits), targets = at<const std::int32_t>(targets),
            rows = targets.count, vocabulary](ThreadPool& pool) {
             cpu::cross_entropy_forward(pool, losses, logits, targets, rows, vocabulary);
           });
  });
}

}  // namespace kintsugi::kernels::cpu
