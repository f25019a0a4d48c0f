// SPDX-License-Identifier: Apache-2.0
// Whole trainings on servers, each task on a thread of this process.
#include "bindings/trainer/server/strategy/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/nn/layers.h"
#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/fit/strategy/strategy_kit.h"
#include "test/unit/trainer/server/served_kit.h"

namespace ronde::trainer::server {
namespace {

// The model that the chief, which is no worker, has in the end.
std::string hash_after(bool fed, const std::string& mode) {
  ServedJobOptions job{.chief = true, .tasks = {.fed = fed}};
  job.tasks.servers.mode = mode_of(mode);
  return run_served(job, [](Strategy&) {
    Model model([] { return Linear("line", 1, 1, Initialization::kGlorot, 1); });
    model.compile({.schedule = {.learning_rate = 0.05}}, regression_loss);
    // Five samples in batches of four: of every second batch one worker has none.
    const Dataset five =
        Dataset::from_arrays({1}, {1, 2, 3, 4, 5}, std::vector<float>{1, 3, 2, 5, 4});
    model.fit(five.batch(4), {.epochs = 20});
    return model.parameter_hash();
  });
}

TEST(ServerTraining, ARoundThatIsFedIsThePartsOfOneBatch) {
  const std::string own = hash_after(false, "sync");
  ASSERT_NE(own, "");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(hash_after(true, "sync"), own);
}

// Those of a network that is to give its inputs back, which are the answers, too.
TEST(ServerTraining, TasksWithOtherArraysAreRefused) {
  std::map<std::string, std::string> errors;
  ServedJobOptions job{.errors = &errors};
  job.tasks.servers.worker_timeout = 1.0;  // the chief goes on without the other one
  (void)run_served(job, [](Strategy& strategy) {
    Model model([] { return Linear("line", 1, 1, Initialization::kGlorot, 1); });
    model.compile({.schedule = {.learning_rate = 0.05}}, regression_loss);
    const Array mine{{2, 1}, {1.0F, strategy.is_chief() ? 2.0F : 3.0F}};
    model.fit(mine, mine.values, 2, {.epochs = 2});
    return std::string("done");
  });
  EXPECT_THAT(errors["worker 1"], testing::HasSubstr("and the variables of ps 0 are those of a "
                                                     "training with inputs-"));
}

constexpr std::chrono::milliseconds kPause{2000};

class PauseAfterTheLastStep final : public Callback {
 public:
  explicit PauseAfterTheLastStep(std::uint64_t steps) : steps_(steps) {}
  void on_step(TrainingState& state) override {
    if (state.global_step >= steps_) std::this_thread::sleep_for(kPause);
  }

 private:
  std::uint64_t steps_;
};

// The seconds that the chief measures, where the other worker comes late and ends late.
double seconds_beside_a_late_worker(const std::string& mode) {
  ServedJobOptions job;
  job.tasks.servers.mode = mode_of(mode);
  double seconds = 0.0;
  (void)run_served(job, [&](Strategy& strategy) {
    const bool chief = strategy.is_chief();
    if (!chief) std::this_thread::sleep_for(kPause);
    Model model(toy_network);
    model.compile(kToyOptions, classification_loss);
    const FitResult fitted = model.fit(toy_batches(), {.most_steps = 30}, [&](const auto&) {
      std::vector<std::unique_ptr<Callback>> all;
      if (!chief) all.push_back(std::make_unique<PauseAfterTheLastStep>(30));
      return all;
    });
    if (chief) seconds = fitted.seconds;
    return std::string("done");
  });
  return seconds;
}

// The least of several times: where a task gets no core for a while, its steps take longer.
TEST(ServerTraining, SecondsAreThoseOfTheSteps) {
  constexpr double kLimit = std::chrono::duration<double>(kPause).count() / 2;
  for (const char* const mode : {"sync", "async"}) {
    SCOPED_TRACE(mode);
    double seconds = seconds_beside_a_late_worker(mode);
    for (int again = 0; again < 5 && seconds >= kLimit; ++again) {
      seconds = std::min(seconds, seconds_beside_a_late_worker(mode));
    }
    EXPECT_GT(seconds, 0.0);
    EXPECT_LT(seconds, kLimit);
  }
}

// The errors of a job in which the loss of the chief, or of the other worker, fails in its 24th
// step.
std::map<std::string, std::string> errors_where_one_fails(ServedJobOptions job, bool chief_fails) {
  std::map<std::string, std::string> errors;
  job.errors = &errors;
  job.tasks.servers.mode = mode_of("sync");
  job.tasks.servers.worker_timeout = 2.0;
  (void)run_served(job, [&](Strategy& strategy) {
    const bool fails = strategy.is_chief() == chief_fails;
    Model model(toy_network);
    int losses = 0;
    const auto loss = [&, fails](const Tensor& outputs, const Batch& batch) {
      // The first one is of the trial of shapes.
      if (fails && ++losses > 24) throw TrainerError("this sample cannot be read", 78);
      return classification_loss(outputs, batch);
    };
    model.compile(kToyOptions, loss);
    (void)model.fit(toy_batches(), {.epochs = 2});
    return std::string("done");
  });
  return errors;
}

TEST(ServerTraining, AnErrorOfAStepNamesTheTaskAndTheStepOfTheServers) {
  using testing::Pair;
  EXPECT_THAT(errors_where_one_fails({}, false),
              testing::ElementsAre(Pair("worker 1",
                                        "worker 1, after step 23 of the servers: this "
                                        "sample cannot be read")));
}

// While the other worker waits for its round.
TEST(ServerTraining, AnErrorOfTheChiefEndsAllTasks) {
  using testing::Pair;
  const std::string error = "worker 0, after step 23 of the servers: this sample cannot be read";
  const std::string told = " ends: the chief has ended with an error: " + error;
  EXPECT_THAT(errors_where_one_fails({.servers = 2}, true),
              testing::ElementsAre(Pair("ps 0", "ps 0" + told), Pair("ps 1", "ps 1" + told),
                                   Pair("worker 0", error), Pair("worker 1", "worker 1" + told)));
}

}  // namespace
}  // namespace ronde::trainer::server
