#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kernels/cpu/cpu_device.hpp"
#include "kernels/cpu/matmul.hpp"
#include "tests/kernels/float64_reference.hpp"

namespace kintsugi::kernels::cpu {
namespace {

// The order that kernels/cpu/product.cpp writes down, one element at a time.
float written_order(const Operand<float>& a, const Operand<float>& b, std::int64_t i, std::int64_t j,
                    std::int64_t depth, bool keep, float start) {
  constexpr std::int64_t kBlock = 192;
  for (std::int64_t k = 0; k < depth;) {
    float sum = 0;
    for (const std::int64_t end = std::min(k + kBlock, depth); k < end; ++k) {
      sum = std::fma(a.data[a.transposed ? k * a.stride + i : i * a.stride + k],
                     b.data[b.transposed ? j * b.stride + k : k * b.stride + j], sum);
    }
    start = keep ? start + sum : sum;
    keep = true;
  }
  return start;
}

enum class Start { nothing, bias, out };

void expect_written_order(PanelShape s, bool a_transposed, bool b_transposed, Start start) {
  const auto a = random_vector<float>(s.rows * s.depth, 1, 1), b = random_vector<float>(s.depth * s.columns, 1, 2);
  const auto bias = random_vector<float>(s.columns, 1, 3);
  const Operand<float> left{a.data(), a_transposed ? s.rows : s.depth, a_transposed};
  const Operand<float> right{b.data(), b_transposed ? s.depth : s.columns, b_transposed};
  std::vector<float> out(static_cast<std::size_t>(s.rows * s.out_stride), 0.5f), expected = out;
  for (std::int64_t i = 0; i < s.rows; ++i) {
    for (std::int64_t j = 0; j < s.columns; ++j) {
      const float before = start == Start::bias ? bias[static_cast<std::size_t>(j)] : 0.5f;
      expected[static_cast<std::size_t>(i * s.out_stride + j)] =
          written_order(left, right, i, j, s.depth, start != Start::nothing, before);
    }
  }
  multiply(out.data(), left, right, start == Start::bias ? bias.data() : nullptr, start == Start::out, s);
  EXPECT_TRUE(same_bits(out, expected)) << s.rows << " x " << s.columns << " x " << s.depth << (a_transposed ? " a^T" : "")
                                        << (b_transposed ? " b^T" : "") << " start " << static_cast<int>(start);
}

TEST(Product, every_element_is_the_written_chain_whatever_the_shape_the_transposition_and_the_start) {
  if (cpu_kernel_variant().find("SCALAR") != std::string::npos) GTEST_SKIP() << "this ISA has no fused multiply-add";
  prepare_compute_thread();
  for (const PanelShape s : {PanelShape{1, 1, 1, 1}, PanelShape{8, 48, 192, 48}, PanelShape{17, 101, 450, 103},
                             PanelShape{1040, 50, 200, 50}}) {
    for (const bool a_transposed : {false, true}) {
      for (const bool b_transposed : {false, true}) {
        for (const Start start : {Start::nothing, Start::bias, Start::out}) {
          expect_written_order(s, a_transposed, b_transposed, start);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kintsugi::kernels::cpu
