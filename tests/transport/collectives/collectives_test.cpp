// Collectives over real carriers, on devices whose memory the host cannot touch.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/philox.hpp"
#include "tests/transport/collectives/on_ranks.hpp"
#include "transport/collectives/all_gather_direct.hpp"
#include "transport/collectives/all_reduce_tree.hpp"
#include "transport/collectives/reduce_scatter_tree.hpp"
#include "transport/collectives/vote.hpp"

namespace kintsugi::transport::collectives {
namespace {

using kernels::DType;
using kernels::View;
using test::Carrier;
using ::testing::HasSubstr;

using Values = std::vector<float>;

Values values_of(std::uint32_t lane, std::int64_t count) {
  Values v(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < v.size(); ++i) {
    const std::uint64_t bits = philox_u64(philox_key(lane), i, 0);
    v[i] = std::ldexp(static_cast<float>(static_cast<std::int32_t>(bits)), static_cast<int>((bits >> 32) % 30));
  }
  return v;
}

Values naive(const LaneTree& tree, TreeNode node, std::int64_t count) {
  if (node.count == 1) return values_of(node.first, count);
  Values left = naive(tree, tree.left(node), count);
  const Values right = naive(tree, tree.right(node), count);
  for (std::size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Device memory with values in it, made and read inside the stream's work.
struct Array {
  Array(const Party& at, const Values& values) : party(at) {
    auto allocated = party.device.allocate(values.size() * sizeof(float) + 64);
    KINTSUGI_ASSERT(allocated.ok());
    buffer = std::move(allocated).value();
    view = buffer->as(DType::float32, 0, static_cast<std::int64_t>(values.size()));
    if (!values.empty()) party.device.copy_to_device(party.stream, view, values.data());
  }
  Values read() const {
    Values out(static_cast<std::size_t>(view.count));
    if (!out.empty()) party.device.copy_to_host(party.stream, out.data(), view);
    return out;
  }
  const Party& party;
  std::unique_ptr<kernels::Buffer> buffer;
  View view;
};

class CollectivesTest : public ::testing::TestWithParam<Carrier> {};
INSTANTIATE_TEST_SUITE_P(, CollectivesTest, ::testing::Values(Carrier::shm, Carrier::ucx, Carrier::routed),
                         [](const auto& carrier) { return test::to_string(carrier.param); });

TEST_P(CollectivesTest, reduction_gives_the_naive_bits_whatever_rank_works_which_lane) {
  const LaneTree tree(6);
  const std::vector<std::vector<LaneRange>> plans = {
      {{{0}, 0, 6}, {{1}, 6, 6}, {{2}, 6, 6}},
      {{{2}, 0, 1}, {{0}, 1, 5}, {{1}, 5, 6}},
      {{{1}, 0, 2}, {{0}, 2, 2}, {{2}, 2, 6}},
  };
  constexpr std::int64_t kCount = 10'007;
  const Values expected = naive(tree, tree.root(), kCount);
  test::expect_all_ok(test::on_ranks(GetParam(), 3, [&](Party& party) -> Result<void> {
    for (std::uint64_t step = 0; step < plans.size(); ++step) {
      const LaneAssignment assignment(tree, plans[step]);
      std::vector<std::unique_ptr<Array>> arrays;
      std::vector<PartialSum> sums;
      for (const TreeNode node : assignment.nodes_of(party.self)) {
        arrays.push_back(std::make_unique<Array>(party, naive(tree, node, kCount)));
        sums.push_back({node, arrays.back()->view});
      }
      const Reduction reduction{{step}, {17}, 2};
      if (party.self.value == 0) {
        const Array out(party, Values(kCount, 0.0F));
        KINTSUGI_TRY(reduce_to_primary(party, reduction, assignment, sums, out.view, test::in(seconds(20))));
        EXPECT_TRUE(same_bits(out.read(), expected)) << "plan " << step;
      } else {
        KINTSUGI_TRY_ASSIGN(const auto tickets, send_partial_sums(party, reduction, {0}, sums, test::in(seconds(20))));
        KINTSUGI_TRY(wait_all_sent(party.links, tickets, test::in(seconds(20))));
      }
    }
    return {};
  }));
}

TEST_P(CollectivesTest, subscribers_collect_shards_in_the_order_they_need_them) {
  test::expect_all_ok(test::on_ranks(GetParam(), 3, [&](Party& party) -> Result<void> {
    const Array own(party, values_of(party.self.value, 3000 + party.self.value));
    const std::vector<RankId> all = {{0}, {1}, {2}};
    KINTSUGI_TRY_ASSIGN(const auto tickets,
                        publish(party, {{party.self.value}, {8}}, own.view, all, test::in(seconds(20))));
    std::vector<std::unique_ptr<Array>> copies;
    std::vector<Subscription> wanted;
    for (std::uint32_t primary = 3; primary-- > 0;) {
      if (primary == party.self.value) continue;
      copies.push_back(std::make_unique<Array>(party, Values(3000 + primary)));
      wanted.push_back({{{primary}, {8}}, {primary}, copies.back()->view});
    }
    KINTSUGI_TRY(collect(party, wanted, test::in(seconds(20))));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::uint32_t primary = wanted[i].primary.value;
      EXPECT_TRUE(same_bits(copies[i]->read(), values_of(primary, 3000 + primary)));
    }
    return wait_all_sent(party.links, tickets, test::in(seconds(20)));
  }));
}

TEST_P(CollectivesTest, all_reduce_gives_the_naive_bits_at_every_rank_and_size) {
  for (const std::uint32_t ranks : {2U, 3U, 5U}) {
    test::expect_all_ok(test::on_ranks(GetParam(), ranks, [&](Party& party) -> Result<void> {
      std::vector<RankId> all;
      for (std::uint32_t i = 0; i < ranks; ++i) all.push_back({i});
      std::uint64_t step = 0;
      for (const std::int64_t count : {1, 15, 16, 1000, 1'000'003}) {
        const Array data(party, values_of(party.self.value, count));
        KINTSUGI_TRY(all_reduce_tree(party, all, data.view, {++step}, test::in(seconds(20))));
        EXPECT_TRUE(same_bits(data.read(), naive(LaneTree(ranks), {0, ranks}, count))) << count;
      }
      return {};
    }));
  }
}

TEST(AllReduceTree, slices_cover_the_array_in_order_on_whole_cache_lines) {
  for (std::int64_t slices = 1; slices <= 64; ++slices) {
    for (const std::int64_t elements : {0, 1, 15, 16, 17, 1000, 4096, 1'000'003}) {
      std::int64_t next = 0;
      for (std::int64_t i = 0; i < slices; ++i) {
        const Slice s = slice_of(elements, slices, i);
        EXPECT_EQ(s.first, next);
        EXPECT_EQ(s.first % 16, 0);
        EXPECT_GE(s.count, 0);
        next = s.first + s.count;
      }
      EXPECT_EQ(next, elements);
    }
  }
}

// Contributions are sets of bytes; the decision is the sorted union.
Vote union_vote(std::uint64_t step) {
  Vote v;
  v.step = {step};
  v.merge = [](std::span<const std::byte> a, std::span<const std::byte> b) -> Result<Bytes> {
    Bytes both(a.begin(), a.end());
    both.insert(both.end(), b.begin(), b.end());
    return both;
  };
  v.decide = [](std::span<const std::byte> all) -> Result<Bytes> {
    Bytes sorted(all.begin(), all.end());
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  };
  return v;
}

TEST_P(CollectivesTest, every_rank_learns_one_decision_from_all_contributions) {
  for (const std::uint32_t ranks : {1U, 2U, 11U}) {
    std::vector<RankId> order;
    Bytes expected;
    for (std::uint32_t i = 0; i < ranks; ++i) {
      order.push_back({ranks - 1 - i});
      expected.push_back(std::byte(i));
    }
    const ControlTree tree(order);
    test::expect_all_ok(test::on_ranks(GetParam(), ranks, [&](Party& party) -> Result<void> {
      for (std::uint64_t step = 0; step < 10; ++step) {
        KINTSUGI_TRY_ASSIGN(const Bytes decision, vote(party.links, tree, party.self, {std::byte(party.self.value)},
                                                       union_vote(step), test::in(seconds(20))));
        EXPECT_EQ(decision, expected);
      }
      return {};
    }));
  }
}

TEST_P(CollectivesTest, a_vote_that_misses_a_rank_ends_at_its_deadline_and_names_it) {
  const ControlTree tree({{0}, {1}, {2}});
  const auto results = test::on_ranks(GetParam(), 3, [&](Party& party) -> Result<void> {
    if (party.self.value == 2) return {};
    const auto decision = vote(party.links, tree, party.self, {}, union_vote(1), test::in(milliseconds(100)));
    if (!decision) return decision.error();
    return {};
  });
  ASSERT_FALSE(results[0].ok());
  EXPECT_THAT(results[0].error().message, HasSubstr("rank 2"));
  EXPECT_FALSE(results[1].ok());
  EXPECT_TRUE(results[2].ok());
}

TEST_P(CollectivesTest, a_contribution_beyond_the_limit_is_refused_before_it_is_sent) {
  const ControlTree tree({{0}, {1}});
  const auto results = test::on_ranks(GetParam(), 2, [&](Party& party) -> Result<void> {
    if (party.self.value == 0) return {};
    const auto decision =
        vote(party.links, tree, party.self, Bytes(kMaxSmallMessageBytes + 1), union_vote(1), kNoDeadline);
    EXPECT_FALSE(decision.ok());
    return decision.error();
  });
  EXPECT_EQ(results[1].error().action, ErrorAction::tell_user);
}

}  // namespace
}  // namespace kintsugi::transport::collectives
