// SPDX-License-Identifier: Apache-2.0
// Ranks that agree, and the text for ranks that do not.
#include "bindings/trainer/loop/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/local_ranks.h"

namespace ronde::trainer {
namespace {

TEST(GroupedByValue, NamesEachValueOnce) {
  EXPECT_EQ(grouped_by_value({"5"}), "5 on rank 0");
  EXPECT_EQ(grouped_by_value({"5", "6", "5"}), "5 on ranks 0, 2 and 6 on rank 1");
  EXPECT_EQ(grouped_by_value({"a", "b", "c"}), "a on rank 0, b on rank 1 and c on rank 2");
}

TEST(FlagDifferences, NamesEveryFlagThatDiffers) {
  const Flags first{{"--epochs", "5"}, {"--seed", "1"}, {"--data", ""}};
  const Flags second{{"--epochs", "6"}, {"--seed", "1"}, {"--data", "x"}};
  EXPECT_EQ(flag_differences({first, first}), "");
  EXPECT_EQ(flag_differences({first, second}),
            "--epochs is 5 on rank 0 and 6 on rank 1; --data is \"\" on rank 0 and x on rank 1");
  EXPECT_EQ(flag_differences({first, Flags{{"--seed", "1"}, {"--data", ""}}}),
            "--epochs is 5 on rank 0 and nothing on rank 1");
}

// The text and the speaker of the AgreedError of every rank.
std::vector<std::pair<std::string, int>> errors_with_speakers(
    int ranks, const std::function<void(Replica&, int)>& body) {
  std::vector<std::pair<std::string, int>> errors(static_cast<std::size_t>(ranks), {"none", -2});
  run_ranks(ranks, [&](const LocalJob& job, int rank) {
    Engine engine(job, rank);
    EngineReplica replica(engine);
    try {
      body(replica, rank);
    } catch (const AgreedError& error) {
      errors[static_cast<std::size_t>(rank)] = {error.what(), error.speaker()};
    }
  });
  return errors;
}

TEST(RequireSameFlags, TheSameErrorOnEveryRank) {
  const auto errors = errors_with_speakers(3, [](Replica& replica, int rank) {
    require_same_flags(replica, {{"--data", ""}, {"--epochs", rank == 1 ? "6" : "5"}});
  });
  for (const auto& [text, speaker] : errors) {
    EXPECT_EQ(text,
              "the ranks were started with different flags: --epochs is 5 on ranks 0, 2 and 6 on "
              "rank 1: start every rank with the same flags");
    EXPECT_EQ(speaker, AgreedError::kEveryRank);
  }
  const auto none = errors_with_speakers(3, [](Replica& replica, int) {
    require_same_flags(replica, {{"--data", "a b\n=c"}, {"--epochs", ""}});
  });
  EXPECT_THAT(none, testing::Each(testing::Pair("none", -2)));
}

TEST(RequireSuccess, EveryRankGetsTheFirstFailure) {
  const auto errors = errors_with_speakers(4, [](Replica& replica, int rank) {
    require_success(replica, rank >= 2 ? "rank " + std::to_string(rank) + " failed" : "");
  });
  EXPECT_THAT(errors, testing::Each(testing::Pair("rank 2 failed", 2)));
  const auto none =
      errors_with_speakers(2, [](Replica& replica, int) { require_success(replica, ""); });
  EXPECT_THAT(none, testing::Each(testing::Pair("none", -2)));
}

TEST(RequireSameParameters, TellsWhoHasWhat) {
  const auto errors = errors_with_speakers(2, [](Replica& replica, int rank) {
    require_same_parameters(replica, rank == 0 ? "aa" : "bb");
  });
  EXPECT_THAT(errors,
              testing::Each(testing::Pair(testing::HasSubstr("aa on rank 0 and bb on rank 1"), 0)));
  const auto none = errors_with_speakers(
      2, [](Replica& replica, int) { require_same_parameters(replica, "aa"); });
  EXPECT_THAT(none, testing::Each(testing::Pair("none", -2)));
}

}  // namespace
}  // namespace ronde::trainer
