// CpuOps: what a model's layers are made of.
#include "kernels/cpu/cpu_ops-inl.hpp"

namespace kintsugi::kernels::cpu {

void CpuOps::embedding_forward(Stream& stream, View out, View tokens, View table, View positions, std::int64_t width,
                               std::int64_t length) {
  check_whole_rows(table, width);
  check(out.count == tokens.count * width && length > 0 && tokens.count % length == 0);
  check(positions.empty() || positions.count >= length * width);
  with_type(out.dtype, [&]<class T>(T) {
    launch(stream, "embedding_forward",
           [out = at<T>(out), tokens = at<const std::int32_t>(tokens), table = at<const T>(table),
            positions = at<const T>(positions), rows = tokens.count, vocabulary = table.count / width, width,
            length](ThreadPool& pool) {
             cpu::embedding_forward(pool, out, tokens, table, positions, rows, vocabulary, width, length);
           });
  });
}

void CpuOps::embedding_backward(Stream& stream, View grad_table, View grad_positions, View grad_out, View tokens,
                                std::int64_t width, std::int64_t length, bool accumulate) {
  check_whole_rows(grad_table, width);
  check_whole_rows(grad_positions, width);
  check(grad_out.count == tokens.count * width && length > 0 && tokens.count % length == 0);
  check(grad_positions.empty() || grad_positions.count >= length * width);
  with_type(grad_out.dtype, [&]<class T>(T) {
    launch(stream, "embedding_backward",
           [grad_table = at<float>(grad_table), grad_positions = at<float>(grad_positions),
            grad_out = at<const T>(grad_out), tokens = at<const std::int32_t>(tokens), rows = tokens.count,
            vocabulary = grad_table.count / width, width, length, position_rows = grad_positions.count / width,
            accumulate](ThreadPool& pool) {
             cpu::embedding_backward(pool, grad_table, grad_positions, grad_out, tokens, rows, vocabulary, width,
                                     length, position_rows, accumulate);
           });
  });
}

void CpuOps::layernorm_forward(Stream& stream, View out, View mean, View rstd, View in, View weight, View bias,
                               std::int64_t width, float epsilon) {
  check_whole_rows(in, width);
  const std::int64_t rows = in.count / width;
  check(out.count == in.count && mean.count == rows && rstd.count == rows);
  check(weight.count == width && bias.count == width);
  with_type(in.dtype, [&]<class T>(T) {
    launch(stream, "layernorm_forward",
           [out = at<T>(out), mean = at<float>(mean), rstd = at<float>(rstd), in = at<const T>(in),
            weight = at<const T>(weight), bias = at<const T>(bias), rows, width, epsilon](ThreadPool& pool) {
             cpu::layernorm_forward(pool, out, mean, rstd, in, weight, bias, rows, width, epsilon);
           });
  });
}

void CpuOps::layernorm_backward(Stream& stream, View grad_in, View grad_weight, View grad_bias, View grad_out, View in,
                                View mean, View rstd, View weight, std::int64_t width, bool accumulate) {
  check_whole_rows(in, width);
  const std::int64_t rows = in.count / width;
  check(grad_in.count == in.count && grad_out.count == in.count && mean.count == rows && rstd.count == rows);
  check(weight.count == width && grad_weight.count == width && grad_bias.count == width);
  with_type(in.dtype, [&]<class T>(T) {
    launch(stream, "layernorm_backward",
           [grad_in = at<T>(grad_in), grad_weight = at<float>(grad_weight), grad_bias = at<float>(grad_bias),
            grad_out = at<const T>(grad_out), in = at<const T>(in), mean = at<const float>(mean),
            rstd = at<const float>(rstd), weight = at<const T>(weight), rows, width, accumulate](ThreadPool& pool) {
             cpu::layernorm_backward(pool, grad_in, grad_weight, grad_bias, grad_out, in, mean, rstd, weight, rows,
                                     width, accumulate);
           });
  });
}

void CpuOps::rmsnorm_forward(Stream& stream, View out, View rstd, View in, View weight, std::int64_t width,
                             float epsilon) {
  check_whole_rows(in, width);
  check(out.count == in.count && rstd.count == in.count / width && weight.count == width);
  with_type(in.dtype, [&]<class T>(T) {
    launch(stream, "rmsnorm_forward",
           [out = at<T>(out), rstd = at<float>(rstd), in = at<const T>(in), weight = at<const T>(weight),
            rows = in.count / width, width,
            epsilon](ThreadPool& pool) { cpu::rmsnorm_forward(pool, out, rstd, in, weight, rows, width, epsilon); });
  });
}

void CpuOps::rmsnorm_backward(Stream& stream, View grad_in, View grad_weight, View grad_out, View in, View rstd,
                              View weight, std::int64_t width, bool accumulate) {
  check_whole_rows(in, width);
  check(grad_in.count == in.count && grad_out.count == in.count && rstd.count == in.count / width);
  check(weight.count == width && grad_weight.count == width);
  with_type(in.dtype, [&]<class T>(T) {
    launch(stream, "rmsnorm_backward",
           [grad_in = at<T>(grad_in), grad_weight = at<float>(grad_weight), grad_out = at<const T>(grad_out),
            in = at<const T>(in), rstd = at<const float>(rstd), weight = at<const T>(weight), rows = in.count / width,
            width, accumulate](ThreadPool& pool) {
             cpu::rmsnorm_backward(pool, grad_in, grad_weight, grad_out, in, rstd, weight, rows, width, accumulate);
           });
  });
}

namespace {

void check_linear(const View& out, const View& in, const View& weight, const LinearShape& s) {
  check(s.rows > 0 && s.inputs > 0 && s.outputs > 0);
  check(out.count == s.rows * s.outputs && in.count == s.rows * s.inputs && weight.count == s.outputs * s.inputs);
}

}  // namespace

void CpuOps::linear_forward(Stream& stream, View out, View in, View weight, View bias, LinearShape shape) {
  check_linear(out, in, weight, shape);
  check_optional(bias, shape.outputs);
  with_type(in.dtype, [&]<class T>(T) {
    const auto enqueue = [&]<class Out>(Out* to) {
      launch(stream, "linear_forward",
             [to, in = at<const T>(in), weight = at<const T>(weight), bias = at<const T>(bias),
              shape](ThreadPool& pool) { cpu::linear_forward(pool, to, in, weight, bias, shape); });
    };
    if (out.dtype == DType::float32)
      enqueue(at<float>(out));
    else
      enqueue(at<T>(out));
  });
}

void CpuOps::linear_backward_input(Stream& stream, View grad_in, View grad_out, View weight, LinearShape shape) {
  check_linear(grad_out, grad_in, weight, shape);
  with_type(grad_out.dtype, [&]<class T>(T) {
    launch(stream, "linear_backward_input",
           [grad_in = at<T>(grad_in), grad_out = at<const T>(grad_out), weight = at<const T>(weight),
            shape](ThreadPool& pool) { cpu::linear_backward_input(pool, grad_in, grad_out, weight, shape); });
  });
}

void CpuOps::linear_backward_weight(Stream& stream, View grad_weight, View grad_bias, View grad_out, View in,
                                    LinearShape shape, bool accumulate) {
  check_linear(grad_out, in, grad_weight, shape);
  check_optional(grad_bias, shape.outputs);
  with_type(grad_out.dtype, [&]<class T>(T) {
    launch(stream, "linear_backward_weight",
           [grad_weight = at<float>(grad_weight), grad_bias = at<float>(grad_bias), grad_out = at<const T>(grad_out),
            in = at<const T>(in), shape, accumulate](ThreadPool& pool) {
             cpu::linear_backward_weight(pool, grad_weight, grad_bias, grad_out, in, shape, accumulate);
           });
  });
}

void CpuOps::gelu_forward(Stream& stream, View out, View in) {
  check(out.count == in.count);
  with_type(in.dtype, [&]<class T>(T) {
    launch(stream, "gelu_forward", [out = at<T>(out), in = at<const T>(in), count = in.count](ThreadPool& pool) {
      cpu::gelu_forward(pool, out, in, count);
    });
  });
}

void CpuOps::gelu_backward(Stream& stream, View grad_in, View grad_out, View in) {
  check(grad_in.count == in.count && grad_out.count == in.count);
  with_type(in.dtype, [&]<class T>(T) {
    launch(stream, "gelu_backward",
           [grad_in = at<T>(grad_in), grad_out = at<const T>(grad_out), in = at<const T>(in),
            count = in.count](ThreadPool& pool) { cpu::gelu_backward(pool, grad_in, grad_out, in, count); });
  });
}

void CpuOps::swiglu_forward(Stream& stream, View out, View in, std::int64_t hidden) {
  check_whole_rows(out, hidden);
  check(in.count == 2 * out.count);
  with_type(in.dtype, [&]<class T>(T) {
    launch(stream, "swiglu_forward",
           [out = at<T>(out), in = at<const T>(in), rows = out.count / hidden, hidden](ThreadPool& pool) {
             cpu::swiglu_forward(pool, out, in, rows, hidden);
           });
  });
}

void CpuOps::swiglu_backward(Stream& stream, View grad_in, View grad_out, View in, std::int64_t hidden) {
  check_whole_rows(grad_out, hidden);
  check(in.count == 2 * grad_out.count && grad_in.count == in.count);
  with_type(in.dtype, [&]<class T>(T) {
    launch(stream, "swiglu_backward",
           [grad_in = at<T>(grad_in), grad_out = at<const T>(grad_out), in = at<const T>(in),
            rows = grad_out.count / hidden,
            hidden](ThreadPool& pool) { cpu::swiglu_backward(pool, grad_in, grad_out, in, rows, hidden); });
  });
}

}  // namespace kintsugi::kernels::cpu
