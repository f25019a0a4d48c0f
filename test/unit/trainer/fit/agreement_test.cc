// SPDX-License-Identifier: Apache-2.0
// Ranks that agree, and the text for ranks that do not.
#include "bindings/trainer/fit/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/local_ranks.h"

namespace ronde::trainer {
namespace {

using testing::Each;
using testing::HasSubstr;

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

// What the AgreedError of a rank says.
struct AgreedFailure {
  std::string text;
  int speaker;
  int exit_code;

  friend bool operator==(const AgreedFailure&, const AgreedFailure&) = default;
};
void PrintTo(const AgreedFailure& failure, std::ostream* out) {
  *out << failure.text << " by rank " << failure.speaker << " with " << failure.exit_code;
}
const AgreedFailure kNoFailure{"none", -2, 0};

std::vector<AgreedFailure> errors_with_speakers(int ranks,
                                                const std::function<void(Replica&, int)>& body) {
  std::vector<AgreedFailure> errors(static_cast<std::size_t>(ranks), kNoFailure);
  run_ranks(ranks, [&](const LocalJob& job, int rank) {
    JobRank strategy(job, rank);
    Replica& replica = strategy.replica(0);
    try {
      body(replica, rank);
    } catch (const AgreedError& error) {
      errors[static_cast<std::size_t>(rank)] = {error.what(), error.speaker(), error.exit_code()};
    }
  });
  return errors;
}

TEST(RequireSameFlags, TheSameErrorOnEveryRank) {
  const auto errors = errors_with_speakers(3, [](Replica& replica, int rank) {
    require_same_flags(replica, {{"--data", ""}, {"--epochs", rank == 1 ? "6" : "5"}});
  });
  EXPECT_THAT(errors, Each(AgreedFailure{"the ranks were started with different flags: --epochs is "
                                         "5 on ranks 0, 2 and 6 on rank 1: start every rank with "
                                         "the same flags",
                                         AgreedError::kEveryRank, kExitConfiguration}));
  const auto none = errors_with_speakers(3, [](Replica& replica, int) {
    require_same_flags(replica, {{"--data", "a b\n=c"}, {"--epochs", ""}});
  });
  EXPECT_THAT(none, Each(kNoFailure));
}

TEST(SucceedOnAll, EveryRankGetsTheFirstFailureWithItsExitCode) {
  const auto errors = errors_with_speakers(4, [](Replica& replica, int rank) {
    succeed_on_all(replica, [rank] {
      if (rank == 2) throw DataError("rank 2 failed: 7 of 8", kExitConfiguration);
      if (rank == 3) throw std::runtime_error("rank 3 failed");
    });
  });
  EXPECT_THAT(errors, Each(AgreedFailure{"rank 2 failed: 7 of 8", 2, kExitConfiguration}));
  const auto plain = errors_with_speakers(2, [](Replica& replica, int rank) {
    succeed_on_all(replica, [rank] {
      if (rank == 1) throw std::runtime_error("");
    });
  });
  EXPECT_THAT(plain, Each(AgreedFailure{"", 1, kExitFailure})) << "an error that says nothing";
  const auto none =
      errors_with_speakers(2, [](Replica& replica, int) { succeed_on_all(replica, [] {}); });
  EXPECT_THAT(none, Each(kNoFailure));
}

TEST(RequireSameParameters, TellsWhoHasWhat) {
  const auto errors = errors_with_speakers(2, [](Replica& replica, int rank) {
    require_same_parameters(replica, rank == 0 ? "aa" : "bb");
  });
  for (const AgreedFailure& one : errors) {
    EXPECT_THAT(one.text, HasSubstr("aa on rank 0 and bb on rank 1"));
    EXPECT_EQ(one.speaker, 0);
    EXPECT_EQ(one.exit_code, kExitFailure) << "another start may well end otherwise";
  }
  const auto none = errors_with_speakers(
      2, [](Replica& replica, int) { require_same_parameters(replica, "aa"); });
  EXPECT_THAT(none, Each(kNoFailure));
}

}  // namespace
}  // namespace ronde::trainer
