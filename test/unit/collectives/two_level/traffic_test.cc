// SPDX-License-Identifier: Apache-2.0
// What passes between hosts, and how much memory that takes.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "test/conformance/planes.h"

namespace ronde::collectives {
namespace {

using conformance::Case;
using conformance::Cases;
using conformance::Hosts;
using conformance::Planes;

class TwoLevelTrafficTest : public ::testing::TestWithParam<conformance::Leaders> {
 protected:
  // Does what fill(cases) makes and returns the bytes that all ranks have sent.
  template <typename Fill>
  static std::int64_t sent(std::string_view algorithm, const Fill& fill) {
    constexpr std::int64_t kSegment = 4096;
    Planes planes(
        {.leaders = GetParam(),
         .environment = {"RONDE_ALGORITHM=" + std::string(algorithm), "RONDE_PIECE_BYTES=4096",
                         "RONDE_SEGMENT_BYTES=" + std::to_string(kSegment)},
         .slot_lines = 64,
         .block = 8 * kSegment});
    run_in_turn(planes,
                lists_of(planes.settings(),
                         [&](const Hosts& hosts, int rank) {
                           Cases cases(hosts, rank);
                           fill(cases);
                           return cases.take();
                         }),
                3);
    std::int64_t bytes = 0;
    for (int rank = 0; rank < planes.size(); ++rank) {
      bytes += planes.ranks().watched(rank).bytes_sent();
      EXPECT_LE(planes.ranks().workspace(rank).idle_bytes().value(), 1 << 20);
    }
    return bytes;
  }
  static base::JobShape shape() { return base::JobShape::of_leaders(GetParam()).value(); }
};

TEST_P(TwoLevelTrafficTest, CompressionHalvesTheBytesBetweenHosts) {
  // Every slice of every chunk has whole lines, compressed or not.
  const std::int64_t hosts = shape().hosts();
  const std::int64_t elements = std::int64_t{32} * 8 * 3 * hosts * shape().slices();
  for (const std::string_view name : {"ring", "direct", "gather"}) {
    const auto allreduce = [&](base::Compression compression) {
      return sent(name, [&](Cases& cases) {
        cases.allreduce({.compression = compression}, elements, Case::Memory::kApart);
      });
    };
    const std::int64_t whole = allreduce(base::Compression::kNone);
    const std::int64_t copies = name == "gather" ? hosts * (hosts - 1) : 2 * (hosts - 1);
    EXPECT_EQ(whole, copies * elements * 4) << name;
    EXPECT_EQ(2 * allreduce(base::Compression::kF16), whole) << name;
    EXPECT_EQ(2 * allreduce(base::Compression::kBf16), whole) << name;
  }
}

// A host receives one sum of its ranks' blocks, however many ranks add to it. The ranks of a host
// send each other no messages.
TEST_P(TwoLevelTrafficTest, AReduceScatterSendsASumOfEachHost) {
  for (const std::string_view name : {"ring", "direct", "gather"}) {
    std::int64_t elements = 0;
    const std::int64_t bytes = sent(name, [&](Cases& cases) {
      conformance::Rows rows;
      for (int rank = 0; rank < shape().ranks(); ++rank) rows.push_back(5000 + 1000 * rank);
      elements = conformance::sum_of(rows);
      cases.reduce_scatter({}, elements, rows, Case::Memory::kApart);
    });
    EXPECT_EQ(bytes, (shape().hosts() - 1) * elements * 4) << name;
  }
}

// Blocks have several segments, as those of a job have, and there are more than fit in flight.
TEST_P(TwoLevelTrafficTest, ALongVectorTakesTheMemoryOfAFewBlocks) {
  for (const std::string_view name : {"ring", "direct"}) {
    sent(name, [&](Cases& cases) {
      cases.allreduce({.op = base::ReduceOp::kAverage}, 150'003, Case::Memory::kApart);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, TwoLevelTrafficTest,
    ::testing::Values(conformance::Leaders{0, 1}, conformance::Leaders{0, 1, 2},
                      conformance::Leaders{0, 0, 2, 2}, conformance::Leaders{0, 0, 2, 3, 4, 4},
                      conformance::Leaders{0, 0, 0, 3}, conformance::Leaders{0, 1, 2, 0, 1, 2, 0}),
    [](const auto& one) { return "of" + conformance::text_of(one.param); });

}  // namespace
}  // namespace ronde::collectives
