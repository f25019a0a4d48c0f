// SPDX-License-Identifier: Apache-2.0
// The data planes do everything in cases.h, and what a seed draws, without a runtime above them:
// all ranks in one thread, in an order that can be repeated.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "test/conformance/drawn_cases.h"
#include "test/conformance/planes.h"
#include "test/property/draws.h"

namespace ronde::conformance {
namespace {

class PlanesTest : public ::testing::TestWithParam<Job> {
 protected:
  // Words of RONDE_ALGORITHM.
  static std::vector<std::string> algorithms() {
    if (GetParam().messages) return {"ring", "direct", "gather"};
    if (*std::ranges::max_element(GetParam().leaders) == 0) return {"auto"};
    return {"auto", "ring", "direct", "gather"};
  }
  // Whatever must not change a bit.
  static PlaneSettings any_settings(std::mt19937_64& random) {
    const auto any = algorithms();
    const std::int64_t segment = std::int64_t{64} << (random() % 6);
    return {.leaders = GetParam().leaders,
            .messages = GetParam().messages,
            .environment = {"RONDE_ALGORITHM=" + any[random() % any.size()],
                            "RONDE_SEGMENT_BYTES=" + std::to_string(segment),
                            "RONDE_PIECE_BYTES=" + std::to_string(64 + random() % 2000),
                            random() % 2 == 0 ? "RONDE_STORES=temporal" : "RONDE_STORES=streaming"},
            .slot_lines = 1 + static_cast<std::int64_t>(random() % 3),
            .block = std::int64_t{64} << (random() % 8),
            .faults = {.seed = random(),
                       .max_delay = static_cast<int>(random() % 5),
                       .synchronous_sends = random() % 3 == 0}};
  }
};

TEST_P(PlanesTest, DoEveryOperationAsTheOrderRuleSays) {
  PlaneSettings settings{.leaders = GetParam().leaders, .messages = GetParam().messages};
  if (settings.leaders.size() > 5) return;  // it takes long, and what is drawn is for them as well
  OnceForAll once;
  const auto lists = lists_of(settings, [&once](const Hosts& hosts, int rank) {
    return Cases(hosts, rank, 1, Numbers::kTelling, &once).all(101, 70'000);
  });
  settings.environment = {"RONDE_ALGORITHM=" + algorithms().front()};
  Planes planes(settings);
  run_in_turn(planes, lists, 1);
  for (const std::string& algorithm : algorithms()) {
    settings.environment = {"RONDE_ALGORITHM=" + algorithm, "RONDE_SEGMENT_BYTES=256"};
    settings.slot_lines = 1;
    settings.block = 5000;
    settings.faults = {.seed = 2, .max_delay = 2};
    Planes small(settings);
    run_in_turn(small, lists, 2);
    ASSERT_FALSE(HasFailure()) << algorithm;
  }
}

TEST_P(PlanesTest, DoWhatIsDrawn) {
  for (std::uint64_t seed = 1; seed <= runtime::seeds_of(40); ++seed) {
    std::mt19937_64 random(seed * 1000 + GetParam().leaders.size());
    Planes planes(any_settings(random));
    run_in_turn(planes, drawn_lists(planes, seed, 20), seed);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, PlanesTest, ::testing::ValuesIn(jobs()),
                         [](const auto& job) { return text_of(job.param); });

// This guards all that is compared with the order rule: with these numbers it shows in the bits.
TEST(Cases, AnotherShapeWouldShow) {
  const std::vector<Hosts> shapes{
      {{0, 1, 2, 3}}, {{0}, {1}, {2}, {3}}, {{0, 1}, {2, 3}}, {{0, 2}, {1, 3}}};
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32, DType::kF64}) {
    std::vector<Bytes> sums;
    for (const Hosts& hosts : shapes) {
      Cases cases(hosts, 0);
      cases.allreduce({.dtype = dtype}, 1000, Case::Memory::kInPlace);
      sums.push_back(cases.take()[0].tensors[0].expected);
      for (std::size_t i = 0; i + 1 < sums.size(); ++i) EXPECT_NE(sums[i], sums.back());
    }
  }
}

}  // namespace
}  // namespace ronde::conformance
