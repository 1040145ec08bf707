#include <gtest/gtest.h>

#include "tests/kernels/float64_reference.hpp"

namespace kintsugi::kernels::cpu {
namespace {

struct Case {
  std::int64_t rows;
  std::int64_t vocabulary;
  std::int64_t width;
  std::int64_t length;
  std::int64_t position_rows;
};
// One of everything; repeated tokens and odd widths; several column blocks and position pieces; a table of more than
// one zeroing piece.
constexpr Case kCases[] = {{1, 1, 1, 1, 1}, {14, 5, 7, 7, 9}, {66, 11, 200, 33, 33}, {8, 4100, 96, 4, 5}};

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

template <class T>
class Embedding : public ::testing::Test {};
TYPED_TEST_SUITE(Embedding, Storages);

TYPED_TEST(Embedding, forward_adds_the_rows_of_token_and_position) {
  ThreadPool pool(2);
  for (const Case& c : kCases) {
    const auto table = random_vector<TypeParam>(c.vocabulary * c.width, 1, 1);
    const auto positions = random_vector<TypeParam>(c.position_rows * c.width, 1, 2);
    const auto tokens = random_indices(c.rows, c.vocabulary, 3);
    for (const bool with_positions : {true, false}) {
      std::vector<TypeParam> out(at(c.rows * c.width));
      embedding_forward(pool, out.data(), tokens.data(), table.data(), with_positions ? positions.data() : nullptr,
                        c.rows, c.vocabulary, c.width, c.length);
      std::vector<double> expected;
      for (std::int64_t r = 0; r < c.rows; ++r) {
        for (std::int64_t i = 0; i < c.width; ++i) {
          const double position = to_double(positions[at(r % c.length * c.width + i)]);
          expected.push_back(to_double(table[at(tokens[at(r)] * c.width + i)]) + (with_positions ? position : 0));
        }
      }
      expect_close(out, expected, 0, "out");
    }
  }
}

TYPED_TEST(Embedding, backward_sums_rows_by_token_and_by_position) {
  ThreadPool pool(2);
  for (const Case& c : kCases) {
    const auto grad_out = random_vector<TypeParam>(c.rows * c.width, 1, 1);
    const auto tokens = random_indices(c.rows, c.vocabulary, 3);
    const auto before_table = random_vector<float>(c.vocabulary * c.width, 1, 4);
    const auto before_positions = random_vector<float>(c.position_rows * c.width, 1, 5);
    for (const bool accumulate : {false, true}) {
      std::vector<double> table = doubles(before_table), positions = doubles(before_positions);
      if (!accumulate) table.assign(table.size(), 0), positions.assign(positions.size(), 0);
      for (std::int64_t r = 0; r < c.rows; ++r) {
        for (std::int64_t i = 0; i < c.width; ++i) {
          table[at(tokens[at(r)] * c.width + i)] += to_double(grad_out[at(r * c.width + i)]);
          positions[at(r % c.length * c.width + i)] += to_double(grad_out[at(r * c.width + i)]);
        }
      }
      auto grad_table = before_table, grad_positions = before_positions, table_alone = before_table;
      embedding_backward(pool, grad_table.data(), grad_positions.data(), grad_out.data(), tokens.data(), c.rows,
                         c.vocabulary, c.width, c.length, c.position_rows, accumulate);
      embedding_backward(pool, table_alone.data(), nullptr, grad_out.data(), tokens.data(), c.rows, c.vocabulary,
                         c.width, c.length, 0, accumulate);
      expect_close(grad_table, table, 5e-6, "grad_table");  // sums of up to 14 terms below 1
      expect_close(grad_positions, positions, 1e-6, "grad_positions");
      EXPECT_TRUE(same_bits(grad_table, table_alone));
    }
  }
}

TYPED_TEST(Embedding, threads_do_not_show) {
  const auto grad_out = random_vector<TypeParam>(300 * 130, 1, 1);
  const auto tokens = random_indices(300, 50, 3);
  expect_threads_do_not_show([&](ThreadPool& pool) {
    std::vector<float> grad(50 * 130 + 100 * 130);
    embedding_backward(pool, grad.data(), grad.data() + 50 * 130, grad_out.data(), tokens.data(), 300, 50, 130, 100,
                       100, false);
    return grad;
  });
}

TEST(EmbeddingGradient, backward_is_the_slope_of_forward) {
  ThreadPool pool(1);
  const auto table = random_vector<float>(4 * 3, 1, 1);
  const auto grad_out = random_vector<float>(6 * 3, 1, 2);
  const auto tokens = random_indices(6, 4, 3);
  std::vector<float> grad(table.size());
  embedding_backward(pool, grad.data(), nullptr, grad_out.data(), tokens.data(), 6, 4, 3, 3, 0, false);
  const auto loss = [&](const std::vector<float>& x) {
    std::vector<float> out(grad_out.size());
    embedding_forward<float>(pool, out.data(), tokens.data(), x.data(), nullptr, 6, 4, 3, 3);
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += to_double(out[i]) * to_double(grad_out[i]);
    return sum;
  };
  for (std::size_t i = 0; i < table.size(); ++i) EXPECT_NEAR(grad[i], numerical_slope(table, i, loss), 1e-4) << i;
}

TEST(EmbeddingDeathTest, a_token_outside_the_vocabulary_is_a_bug) {
  ThreadPool pool(1);
  const std::vector<float> table(4);
  std::vector<float> out(2);
  const std::int32_t token = 2;
  EXPECT_DEATH(embedding_forward<float>(pool, out.data(), &token, table.data(), nullptr, 1, 2, 2, 1),
               "outside the vocabulary");
}

}  // namespace
}  // namespace kintsugi::kernels::cpu
