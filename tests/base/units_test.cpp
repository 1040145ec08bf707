#include "base/units.hpp"

#include <gtest/gtest.h>

namespace kintsugi {
namespace {

TEST(Units, sizes_read_as_people_write_them) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1'023), "1023 B");
  EXPECT_EQ(format_bytes(kKiB), "1.0 KiB");
  EXPECT_EQ(format_bytes(kMiB * 3 / 2), "1.5 MiB");
  EXPECT_EQ(format_bytes(kGiB * 24), "24.0 GiB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "16384.0 PiB");
}

TEST(Units, align_up_reaches_the_next_multiple_and_stays_on_one) {
  EXPECT_EQ(align_up(0, 64), 0u);
  EXPECT_EQ(align_up(1, 64), 64u);
  EXPECT_EQ(align_up(64, 64), 64u);
  EXPECT_EQ(align_up(65, 64), 128u);
  EXPECT_EQ(align_up(10, 3), 12u);
}

TEST(Units, ceil_div_counts_the_last_short_piece) {
  EXPECT_EQ(ceil_div(0, 4), 0);
  EXPECT_EQ(ceil_div(8, 4), 2);
  EXPECT_EQ(ceil_div(9, 4), 3);
}

}  // namespace
}  // namespace kintsugi
