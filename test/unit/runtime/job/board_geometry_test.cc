// SPDX-License-Identifier: Apache-2.0
// The sizes of a job's board, as its settings give them.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/job/job.h"

namespace ronde::runtime {
namespace {

// The arenas lie side by side, so none would have huge pages behind one that ends within one.
TEST(BoardGeometryOfJob, ArenasAreWholeHugePagesWhereTheyHaveAny) {
  constexpr std::int64_t kMebi = std::int64_t{1} << 20;
  const std::vector<std::pair<std::int64_t, std::int64_t>> arenas{{0, 0},
                                                                  {1, 4096},
                                                                  {5000, 8192},
                                                                  {2 * kMebi - 1, 2 * kMebi},
                                                                  {2 * kMebi, 2 * kMebi},
                                                                  {5 * kMebi, 6 * kMebi},
                                                                  {64 * kMebi, 64 * kMebi}};
  for (const auto& [asked, made] : arenas) {
    base::Config config;
    config.buffer_bytes = base::Bytes(asked);
    EXPECT_EQ(board_geometry(3, config).arena_bytes, made) << asked;
  }
}

}  // namespace
}  // namespace ronde::runtime
