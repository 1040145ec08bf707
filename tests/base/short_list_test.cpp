#include "base/short_list.hpp"

#include <gtest/gtest.h>

#include "base/philox.hpp"

namespace kintsugi {
namespace {

using Few = ShortList<std::uint32_t, 3>;

TEST(ShortList, does_what_a_vector_does_within_and_beyond_its_place) {
  const PhiloxKey key = philox_key(7);
  std::uint64_t draws = 0;
  const auto draw = [&](std::uint64_t below) {
    return static_cast<std::uint32_t>(philox_u64(key, ++draws, 0) % below);
  };
  Few list;
  std::vector<std::uint32_t> reference;
  for (int round = 0; round < 20'000; ++round) {
    const std::uint32_t item = draw(5);
    switch (draw(8)) {
      case 0:
        list.clear();
        reference.clear();
        break;
      case 1: EXPECT_EQ(erase_if(list, [&](std::uint32_t i) { return i == item; }), std::erase(reference, item)); break;
      case 2:
        if (list.empty()) break;
        list.erase(list.begin() + item % list.size());
        reference.erase(reference.begin() + item % reference.size());
        break;
      case 3: list = Few(list); break;
      case 4: {
        Few moved = std::move(list);
        EXPECT_TRUE(list.empty());  // NOLINT(bugprone-use-after-move): it is a list of nothing
        list = std::move(moved);
        break;
      }
      default: list.push_back(item); reference.push_back(item);
    }
    ASSERT_EQ(list, Few(reference));
    ASSERT_EQ(std::vector<std::uint32_t>(list), reference);
  }
}

TEST(ShortList, lists_of_any_lengths_are_assigned_to_each_other) {
  for (std::uint32_t a = 0; a < 9; ++a) {
    for (std::uint32_t b = 0; b < 9; ++b) {
      Few to(std::vector<std::uint32_t>(a, 1)), from(std::vector<std::uint32_t>(b, 2));
      EXPECT_EQ(to == from, a == 0 && b == 0);
      to = from;
      EXPECT_EQ(to, from);
      from.push_back(3);
      EXPECT_EQ(to.size(), b) << "a copy of its own";
      Few rest;
      rest = std::move(from);
      EXPECT_EQ(rest.back(), 3U);
    }
  }
}

}  // namespace
}  // namespace kintsugi
