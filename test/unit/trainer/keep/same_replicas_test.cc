// SPDX-License-Identifier: Apache-2.0
// Nothing is saved of ranks that differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/keep/supervisor.h"
#include "bindings/trainer/nn/layers.h"
#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/local_ranks.h"
#include "test/unit/trainer/temporary_folder.h"

namespace ronde::trainer {
namespace {

using testing::Each;
using testing::HasSubstr;

// Four steps of two ranks, of which one goes astray in the second: the AgreedError of each.
std::vector<std::string> errors_with(const SupervisorOptions& options, bool astray,
                                     std::uint64_t epoch_after = 0) {
  std::vector<std::string> errors(2, "none");
  run_ranks(2, [&](const LocalJob& job, int rank) {
    Linear line("line", 2, 1, Initialization::kHe, 1);
    JobRank strategy(job, rank);
    Model model(line);
    Optimizer optimizer(model, {});
    Tape& tape = strategy.here().tape();
    Supervisor supervisor(strategy.here(), optimizer, options);
    try {
      supervisor.managed_session([&] {
        for (std::uint64_t step = 1; step <= 4; ++step) {
          tape.begin();
          const Tensor x = tape.constant({1, 2}, std::array<float, 2>{1, 2});
          optimizer.backward(tape, mean_squared_error(model(x), std::array<float, 1>{}, 2));
          optimizer.step();
          if (astray && rank == 1 && step == 2) model.parameters()[1]->value()[0] += 1.0F;
          supervisor.step_done();
          if (step == epoch_after) supervisor.epoch_done();
        }
      });
    } catch (const AgreedError& error) {
      errors[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  return errors;
}

TEST(SameReplicas, AreRequiredBeforeEachCheckpointAndAfterEachEpoch) {
  const TemporaryFolder folder;
  const auto options = [&](const std::string& name, std::uint64_t save_steps) {
    return SupervisorOptions{.logdir = folder.path() + '/' + name,
                             .save_model_secs = 0.0,
                             .save_steps = save_steps,
                             .say = [](const std::string&) {}};
  };
  EXPECT_THAT(errors_with(options("well", 3), false, 2), Each("none"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/well/step-4"));
  EXPECT_THAT(errors_with(options("steps", 3), true),
              Each(HasSubstr("the ranks differ after step 3: line/bias is ")));
  EXPECT_THAT(errors_with(options("epoch", 0), true, 2), Each(HasSubstr("differ after step 2")));
  EXPECT_THAT(errors_with(options("end", 0), true), Each(HasSubstr("differ after step 4")));
  for (const char* const name : {"/steps/step-3", "/epoch/step-2", "/end/step-4"}) {
    EXPECT_FALSE(std::filesystem::exists(folder.path() + name)) << name;
  }
  EXPECT_THAT(errors_with({.logdir = "", .say = [](const std::string&) {}}, true), Each("none"))
      << "nothing is saved";
}

}  // namespace
}  // namespace ronde::trainer
