// SPDX-License-Identifier: Apache-2.0
#include "collectives/kernels/floating_point_mode.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <limits>

namespace ronde::collectives {
namespace {

// Noinline and volatile make the arithmetic happen at the call, in the mode of that moment.
[[gnu::noinline]] double third() {
  const volatile double one = 1.0;
  const volatile double three = 3.0;
  return one / three;
}
[[gnu::noinline]] float half_of_the_smallest_normal() {
  const volatile float smallest = std::numeric_limits<float>::min();
  const volatile float half = 0.5F;
  return smallest * half;
}

TEST(FloatingPointMode, RoundsToNearestInsideAndAsTheUserOutside) {
  const double nearest = third();
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const double upward = third();
  double inside = 0;
  {
    const ScopedFloatingPointMode mode;
    inside = third();
  }
  const double after = third();
  std::fesetround(FE_TONEAREST);
  EXPECT_NE(upward, nearest);
  EXPECT_EQ(inside, nearest);
  EXPECT_EQ(after, upward);
}

#if defined(__SSE2__)
TEST(FloatingPointMode, KeepsSubnormalsInside) {
  const unsigned users = _mm_getcsr();
  _mm_setcsr(users | 0x8040U);  // flush to zero, denormals are zero
  const float flushed = half_of_the_smallest_normal();
  float inside = 0;
  {
    const ScopedFloatingPointMode mode;
    inside = half_of_the_smallest_normal();
  }
  const float after = half_of_the_smallest_normal();
  _mm_setcsr(users);
  EXPECT_EQ(flushed, 0.0F);
  EXPECT_GT(inside, 0.0F);
  EXPECT_EQ(after, 0.0F);
}
#endif

TEST(FloatingPointMode, LeavesTheUsersFlagsAlone) {
  std::feclearexcept(FE_ALL_EXCEPT);
  {
    const ScopedFloatingPointMode mode;
    (void)third();
  }
  EXPECT_EQ(std::fetestexcept(FE_INEXACT), 0);
}

}  // namespace
}  // namespace ronde::collectives
