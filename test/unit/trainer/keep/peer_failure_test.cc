// SPDX-License-Identifier: Apache-2.0
// Another rank dies: the chief saves what all of them had, and nothing that is half done.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "test/unit/trainer/keep/supervised_training.h"
#include "test/unit/trainer/temporary_folder.h"

namespace ronde::trainer {
namespace {

using testing::Each;
using testing::ElementsAre;

// A rank ends once so many steps are done.
RankHook death_after(std::uint64_t steps, int of_rank) {
  return [steps, of_rank](Supervisor& supervisor, int rank) {
    if (rank == of_rank && supervisor.global_step() == steps) throw std::runtime_error("died");
  };
}

class PeerFailure : public testing::Test {
 protected:
  SupervisedTraining training() const {
    return {
        .ranks = 3, .epochs = 2, .supervisor = {.logdir = folder_.path(), .save_model_secs = 0.0}};
  }

  const TemporaryFolder folder_;
};

TEST_F(PeerFailure, TheChiefSavesTheLastStepAndARestartComesToTheSameBits) {
  SupervisedTraining one = training();
  one.batch_norm = true;
  // oneDNN makes its cache in one thread: the thread sanitizer does not know how it locks.
  run_undisturbed({.ranks = 1, .epochs = 1, .batch_norm = true});
  const SupervisedOutcome whole = run_undisturbed(one);
  one.after_step_done = death_after(5, 2);
  const SupervisedOutcome failed = run_to_failure(one);
  EXPECT_EQ(failed.errors[2], "died");
  EXPECT_NE(failed.errors[0], "") << "it is a failure all the same";
  EXPECT_THAT(failed.exit_codes, Each(kExitFailure));
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(5U));
  EXPECT_THAT(failed.lines,
              testing::Contains("another rank has ended: step 5 is saved in " + folder_.path()));
  one.after_step_done = {};
  const SupervisedOutcome rest = run_supervised(one);
  EXPECT_THAT(rest.began_at, Each(5U));
  EXPECT_EQ(rest.hashes, whole.hashes);
  EXPECT_EQ(rest.tensors[0], whole.tensors[0]);
}

TEST_F(PeerFailure, NothingIsSavedWhereThatIsNotWanted) {
  SupervisedTraining one = training();
  one.supervisor.save_on_failure = false;
  one.after_step_done = death_after(5, 2);
  EXPECT_NE(run_to_failure(one).errors[0], "");
  EXPECT_THAT(steps_in(folder_.path()), testing::IsEmpty());
}

TEST_F(PeerFailure, OtherErrorsSaveNothing) {
  for (const ronde_status status : {RONDE_PEER_FAILED, RONDE_CLOSED, RONDE_MISMATCH}) {
    SupervisedTraining one = training();
    one.supervisor.logdir += '/' + std::to_string(status);
    one.after_step_done = [status](Supervisor& supervisor, int) {
      if (supervisor.global_step() == 7) throw Error(status, "the cause", "", -1);
    };
    EXPECT_THAT(run_to_failure(one).errors, Each("the cause"));
    const bool of_a_peer = status != RONDE_MISMATCH;
    EXPECT_THAT(steps_in(one.supervisor.logdir),
                of_a_peer ? std::vector<std::uint64_t>{7} : std::vector<std::uint64_t>{});
  }
}

// Its update is done, and only the sums of its samples are missing.
TEST_F(PeerFailure, AStepThatIsNotAgreedOnIsSavedToo) {
  SupervisedTraining one = training();
  const SupervisedOutcome whole = run_undisturbed(one);
  one.before_step_done = death_after(5, 2);
  EXPECT_NE(run_to_failure(one).errors[0], "");
  // The others may hear of it while they wait for the gradients, which they have.
  EXPECT_THAT(steps_in(folder_.path()), testing::AnyOf(ElementsAre(5U), ElementsAre(6U)));
  one.before_step_done = {};
  EXPECT_EQ(run_supervised(one).hashes, whole.hashes);
}

}  // namespace
}  // namespace ronde::trainer
