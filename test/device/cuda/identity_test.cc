// SPDX-License-Identifier: Apache-2.0
// What a job makes of its ranks' devices, and where NCCL is looked for.
#include "collectives/cuda/identity.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <vector>

#include "collectives/cuda/nccl_api.h"

namespace ronde::collectives::cuda {
namespace {

using testing::HasSubstr;

Identity rank_with(const std::string& host, const std::string& bus_id, int nccl = 22809) {
  Identity identity;
  identity.has_device = 1;
  identity.nccl_version = nccl;
  store_text(identity.host, host);
  store_text(identity.bus_id, bus_id);
  return identity;
}

TEST(Identity, OneGpuForEachRankIsEnough) {
  const std::vector<Identity> ranks{rank_with("a", "1"), rank_with("a", "2"), rank_with("b", "1")};
  EXPECT_TRUE(verdict_of(ranks).has_collectives);
  EXPECT_EQ(verdict_of(ranks).why_not, "");
}

TEST(Identity, RanksThatShareAGpuStage) {
  const std::vector<Identity> ranks{rank_with("a", "1"), rank_with("b", "1"), rank_with("a", "1")};
  const Verdict verdict = verdict_of(ranks);
  EXPECT_TRUE(verdict.has_devices);
  EXPECT_FALSE(verdict.has_collectives);
  EXPECT_EQ(verdict.why_not, "ranks 0 and 2 share the GPU 1");
}

TEST(Identity, EveryRankNeedsADeviceAndTheSameNccl) {
  std::vector<Identity> ranks{rank_with("a", "1"), rank_with("a", "2", 22304)};
  EXPECT_EQ(verdict_of(ranks).why_not, "rank 1 has NCCL 2.23.4, rank 0 has 2.28.9");
  ranks[1].has_device = 0;
  store_text(ranks[1].why_not, "no driver");
  EXPECT_FALSE(verdict_of(ranks).has_devices);
  EXPECT_EQ(verdict_of(ranks).why_not, "rank 1 has no device: no driver");
}

TEST(Identity, AHostIsWhatNcclTakesForOne) {
  ::unsetenv("NCCL_HOSTID");
  const std::string own = own_host();
  EXPECT_EQ(own_host(), own);
  EXPECT_NE(own, "");
  ::setenv("NCCL_HOSTID", "r1", 1);
  EXPECT_EQ(own_host(), "r1");
  ::unsetenv("NCCL_HOSTID");
}

TEST(Identity, LongTextsAreCut) {
  std::array<char, 8> field{};
  store_text(field, "123456789");
  EXPECT_STREQ(field.data(), "1234567");
}

TEST(NcclApi, IsLookedForByName) {
  const auto none = load_nccl("libronde_no_such_library.so.7");
  EXPECT_EQ(none.status().code(), base::Code::kUnsupported);
  EXPECT_THAT(none.status().message(), HasSubstr("libronde_no_such_library.so.7"));
  const auto other = load_nccl("libm.so.6");
  EXPECT_THAT(other.status().message(), HasSubstr("libm.so.6 has no function ncclGetVersion"));
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
}

}  // namespace
}  // namespace ronde::collectives::cuda
