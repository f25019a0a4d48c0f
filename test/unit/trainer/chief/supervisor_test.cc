// SPDX-License-Identifier: Apache-2.0
// Trainings on the ranks of a job inside this process, under a supervisor: whatever ends them, they
// go on to the very same parameters.
#include "bindings/trainer/chief/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/trainer/chief/callbacks.h"
#include "bindings/trainer/chief/evaluator.h"
#include "bindings/trainer/loop/fit.h"
#include "bindings/trainer/loop/host_learner.h"
#include "bindings/trainer/nn/models.h"
#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/loop/toy_training.h"
#include "test/unit/trainer/temporary_folder.h"

namespace ronde::trainer {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A step of some rank, which may throw or stop the training.
using AfterStep = std::function<void(Supervisor&, int rank)>;

class AfterEachStep final : public Callback {
 public:
  AfterEachStep(Supervisor& supervisor, int rank, const AfterStep& call)
      : supervisor_(supervisor), rank_(rank), call_(call) {}
  void on_step(TrainingState& /*state*/) override {
    if (call_) call_(supervisor_, rank_);
  }

 private:
  Supervisor& supervisor_;
  int rank_;
  const AfterStep& call_;
};

struct Case {
  int ranks = 2;
  std::size_t epochs = 3;
  SupervisorOptions supervisor{};
  AfterStep after_step{};
  std::uint64_t patience = 0;
  double learning_rate = 0.01;
  std::uint64_t seed = 5;
  std::size_t hidden = 12;
};

struct Outcome {
  FitResult fit;  // of rank 0
  std::vector<std::string> hashes;
  std::vector<std::vector<float>> tensors;  // of each rank: all that a checkpoint holds
  std::vector<std::uint64_t> epochs;        // of each rank, at its end
  std::vector<std::uint64_t> began_at;      // the global step of each rank
  std::vector<std::string> lines;
  std::string finished;
};

void run_rank(const Case& one, const LocalJob& job, int rank, std::mutex& mutex, Outcome& outcome) {
  const Images images = toy_data(205, 1);
  // Ranks begin with other weights, so that only the chief's state makes them equal.
  const auto network =
      make_mlp(kFeatures, one.hidden, kClasses, one.seed + static_cast<std::uint64_t>(rank));
  const Model model(*network);
  Engine engine(job, rank);
  EngineReplica replica(engine);
  const Dataset data =
      Dataset::from_images(images, ImageShape::kFlat)
          .shuffle(7)
          .batch(10)
          .shard(static_cast<std::size_t>(rank), static_cast<std::size_t>(one.ranks));
  Adam adam(model.parameters());
  DistributedOptimizer distributed(engine, model.parameters(), model.statistics(), adam,
                                   {.schedule = {.kind = ScheduleOptions::Kind::kLinear,
                                                 .learning_rate = one.learning_rate,
                                                 .total = 1000}});
  HostLearner learner(model, toy_loss, distributed, 5);
  SupervisorOptions options = one.supervisor;
  options.say = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    outcome.lines.push_back(line);
  };
  Supervisor supervisor(replica, model, distributed, options);
  supervisor.managed_session([&] {
    FitOptions how;
    how.epochs = one.epochs;
    go_on(how, supervisor);
    SaveCheckpoints save(supervisor, learner);
    AfterEachStep after(supervisor, rank, one.after_step);
    EarlyStopping early(supervisor.numbers(), one.patience, 0.0, options.say);
    std::vector<Callback*> callbacks{&after};
    if (one.patience != 0) callbacks.push_back(&early);
    callbacks.push_back(&save);
    const std::uint64_t began = supervisor.global_step();
    const FitResult fitted = fit(replica, learner, data, how, callbacks);
    if (!fitted.cut_short) supervisor.finish("done in " + std::to_string(fitted.steps));
    const std::lock_guard lock(mutex);
    outcome.began_at.push_back(began);
    if (rank == 0) outcome.fit = fitted;
  });
  const std::lock_guard lock(mutex);
  if (supervisor.finished_result()) outcome.finished = *supervisor.finished_result();
  outcome.hashes.push_back(model.parameter_hash());
  outcome.epochs.push_back(supervisor.epoch());
  std::vector<float> all;
  for (const Parameter* parameter : model.parameters()) {
    all.insert(all.end(), parameter->value().begin(), parameter->value().end());
  }
  for (const StateTensor& moment : adam.state()) {
    all.insert(all.end(), moment.values.begin(), moment.values.end());
  }
  all.push_back(static_cast<float>(adam.steps()));
  outcome.tensors.push_back(all);
}

Outcome run(const Case& one) {
  Outcome outcome;
  std::mutex mutex;
  run_ranks(one.ranks,
            [&](const LocalJob& job, int rank) { run_rank(one, job, rank, mutex, outcome); });
  return outcome;
}

// The same case as it would end undisturbed.
Outcome undisturbed(Case one) {
  one.supervisor.logdir.clear();
  one.after_step = {};
  return run(one);
}

constexpr std::uint64_t kStepsOfEpoch = 21;  // 205 samples in batches of 10

TEST(Supervisor, ATrainingThatIsStoppedGoesOnToTheSameBits) {
  for (const std::uint64_t stop :
       {std::uint64_t{1}, kStepsOfEpoch - 1, kStepsOfEpoch, kStepsOfEpoch + 5}) {
    const TemporaryFolder folder;
    Case one{.ranks = 2, .supervisor = {.logdir = folder.path()}};
    const Outcome whole = undisturbed(one);
    // One rank alone asks.
    one.after_step = [stop](Supervisor& supervisor, int rank) {
      if (rank == 1 && supervisor.global_step() + 1 == stop) supervisor.stop();
    };
    const Outcome first = run(one);
    EXPECT_TRUE(first.fit.cut_short);
    EXPECT_EQ(first.fit.steps, stop);
    EXPECT_THAT(first.lines,
                Contains(HasSubstr("stopped after step " + std::to_string(stop) + ", saved in")));
    one.after_step = {};
    const Outcome second = run(one);
    EXPECT_THAT(second.began_at, Each(stop));
    EXPECT_THAT(second.lines, Contains(HasSubstr("resumed at step " + std::to_string(stop) + " ")));
    EXPECT_EQ(second.fit.steps, 3 * kStepsOfEpoch - stop);
    EXPECT_EQ(second.hashes, whole.hashes) << "stopped after step " << stop;
    EXPECT_EQ(second.tensors, whole.tensors);
    EXPECT_NEAR(second.fit.training.loss(), whole.fit.training.loss(), 1e-12);
    EXPECT_EQ(second.fit.training.samples, 205);
  }
}

TEST(Supervisor, TheSumsOfACutEpochAreThoseOfTheWholeOne) {
  const TemporaryFolder folder;
  Case one{.ranks = 3, .epochs = 1, .supervisor = {.logdir = folder.path()}};
  const Outcome whole = undisturbed(one);
  one.after_step = [](Supervisor& supervisor, int) {
    if (supervisor.global_step() == 7) supervisor.stop();
  };
  static_cast<void>(run(one));
  one.after_step = {};
  const Outcome rest = run(one);
  EXPECT_NEAR(rest.fit.training.loss(), whole.fit.training.loss(), 1e-9);
  EXPECT_EQ(rest.fit.training.correct, whole.fit.training.correct);
  EXPECT_EQ(rest.fit.training.samples, 205);
}

TEST(Supervisor, FourRanksSaveAndOneTwoAndThreeGoOn) {
  const TemporaryFolder folder;
  Case one{.ranks = 4, .supervisor = {.logdir = folder.path()}};
  one.after_step = [](Supervisor& supervisor, int) {
    if (supervisor.global_step() == 10) supervisor.stop();
  };
  const Outcome four = run(one);
  for (const int ranks : {1, 2, 3}) {
    // Each gets a copy, since it saves where it stands.
    const TemporaryFolder copy;
    std::filesystem::copy(folder.path(), copy.path(),
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::overwrite_existing);
    Case other{.ranks = ranks, .supervisor = {.logdir = copy.path()}};
    other.epochs = 0;  // nothing is left to do
    const Outcome loaded = run(other);
    EXPECT_THAT(loaded.began_at, Each(11U));
    EXPECT_THAT(loaded.tensors, Each(four.tensors[0])) << ranks << " ranks";
    other.epochs = 1;
    other.supervisor.goal = "an epoch";
    EXPECT_EQ(run(other).fit.steps, kStepsOfEpoch - 11);
  }
}

TEST(Supervisor, ASignalStopsAllRanksAfterTheSameStepAndAnotherSaves) {
  for (const int number : {SIGTERM, SIGUSR2}) {
    const TemporaryFolder folder;
    Case one{.ranks = 3, .supervisor = {.logdir = folder.path(), .save_model_secs = 0.0}};
    one.after_step = [number](Supervisor& supervisor, int rank) {
      if (rank == 1 && supervisor.global_step() == 4) raise(SIGUSR1);
      if (rank == 1 && supervisor.global_step() == 9) raise(number);
    };
    const Outcome outcome = run(one);
    EXPECT_TRUE(outcome.fit.cut_short);
    EXPECT_THAT(outcome.hashes, Each(outcome.hashes[0]));
    // The signal's rank sees it in the step after the ninth; another may have seen it before.
    EXPECT_GE(outcome.fit.steps, 9U);
    EXPECT_LE(outcome.fit.steps, 10U);
    const auto saved = list_checkpoints(folder.path());
    ASSERT_EQ(saved.size(), 2U);
    EXPECT_GE(saved[0], 4U);
    EXPECT_LE(saved[0], 6U);
    EXPECT_EQ(saved[1], outcome.fit.steps);
  }
  struct sigaction now {};
  sigaction(SIGTERM, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL) << "the handlers go with the session";
}

TEST(Supervisor, AFailureSavesNothing) {
  const TemporaryFolder folder;
  Case one{.ranks = 2, .supervisor = {.logdir = folder.path()}};
  one.after_step = [](Supervisor& supervisor, int) {
    if (supervisor.global_step() == 5) throw std::runtime_error("broken");
  };
  EXPECT_THROW(static_cast<void>(run(one)), std::runtime_error);
  EXPECT_THAT(list_checkpoints(folder.path()), IsEmpty());
}

TEST(Supervisor, SavesByStepsAndKeepsTheLastOnesAndTheBest) {
  const TemporaryFolder folder;
  Case one{
      .epochs = 2,
      .supervisor = {.logdir = folder.path(), .save_model_secs = 0, .save_steps = 4, .keep = 2}};
  const Outcome outcome = run(one);
  // The loss falls, so the best is that of the last epoch.
  EXPECT_THAT(list_checkpoints(folder.path()), ElementsAre(40U, 42U));
  EXPECT_TRUE(outcome.finished.empty());
}

TEST(Supervisor, AFinishedTrainingSaysItsResultAgainAtOnce) {
  const TemporaryFolder folder;
  Case one{.supervisor = {.logdir = folder.path(), .goal = "3 epochs"}};
  const Outcome first = run(one);
  const Outcome again = run(one);
  EXPECT_EQ(again.finished, "done in 63");
  EXPECT_THAT(again.began_at, IsEmpty()) << "the body does not run";
  EXPECT_EQ(again.tensors, first.tensors);
  // With another goal it goes on.
  one.supervisor.goal = "4 epochs";
  one.epochs = 4;
  const Outcome more = run(one);
  EXPECT_TRUE(more.finished.empty());
  EXPECT_EQ(more.fit.steps, kStepsOfEpoch);
}

TEST(Supervisor, OtherFlagsAndOtherModelsAreRefusedOnEveryRank) {
  const TemporaryFolder folder;
  Case one{.epochs = 1, .supervisor = {.logdir = folder.path(), .flags = {{"--seed", "1"}}}};
  static_cast<void>(run(one));
  Case other = one;
  other.supervisor.flags = {{"--seed", "2"}};
  const auto text_of = [](const Case& wrong) -> std::string {
    try {
      static_cast<void>(run(wrong));
    } catch (const AgreedError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(text_of(other), HasSubstr("--seed"));
  other = one;
  other.hidden = 13;
  EXPECT_THAT(text_of(other), HasSubstr("fc1/weight"));
  other = one;
  other.supervisor.logdir = folder.path() + "/nothing";
  other.supervisor.restore = Restore::kMust;
  EXPECT_THAT(text_of(other), HasSubstr("nothing"));
}

TEST(Supervisor, TheChiefInitialisesWhereNothingIsRestored) {
  const TemporaryFolder folder;
  int calls = 0;
  Case one{.epochs = 1, .supervisor = {.logdir = folder.path(), .init = [&] { ++calls; }}};
  static_cast<void>(run(one));
  EXPECT_EQ(calls, 1) << "on the chief alone";
  one.epochs = 2;
  static_cast<void>(run(one));
  EXPECT_EQ(calls, 1) << "the second time it is restored";
}

TEST(EarlyStopping, EndsAllRanksAfterTheSameEpochAlsoAfterARestart) {
  // Nothing is learned at this rate, so the loss never falls.
  const TemporaryFolder folder;
  Case one{.ranks = 3, .epochs = 9, .supervisor = {.logdir = folder.path()}};
  one.patience = 2;
  one.learning_rate = 1e-30;
  const Outcome outcome = run(one);
  EXPECT_EQ(outcome.fit.steps, 3 * kStepsOfEpoch);
  EXPECT_THAT(outcome.epochs, Each(3U));
  EXPECT_THAT(outcome.lines, Contains(HasSubstr("no gain for 2 epochs, ended after epoch 3")));
  one.supervisor.goal = "another";
  EXPECT_EQ(run(one).fit.steps, 0U) << "it remembers that it had been stopped";
}

TEST(EarlyStopping, CountsOnFromACheckpoint) {
  const TemporaryFolder folder;
  Case one{.ranks = 2, .epochs = 9, .supervisor = {.logdir = folder.path()}};
  one.patience = 3;
  one.learning_rate = 1e-30;
  one.after_step = [](Supervisor& supervisor, int) {
    if (supervisor.global_step() == 2 * kStepsOfEpoch + 3) supervisor.stop();
  };
  static_cast<void>(run(one));
  one.after_step = {};
  const Outcome rest = run(one);
  EXPECT_THAT(rest.epochs, Each(4U));
}

TEST(EarlyStopping, WarnsOfAPatienceThatCannotBeReached) {
  Case one{.ranks = 2, .epochs = 2};
  one.patience = 2;
  EXPECT_THAT(run(one).lines, Contains(HasSubstr("cannot end this training early")));
  one.epochs = 3;
  EXPECT_THAT(run(one).lines, Not(Contains(HasSubstr("cannot end this training early"))));
}

TEST(Evaluator, ScoresEachCheckpointOnceAndEndsAtTheLastOfAFinishedTraining) {
  const TemporaryFolder folder;
  Case one{.epochs = 3, .supervisor = {.logdir = folder.path(), .save_model_secs = 0, .keep = 9}};
  const Outcome training = run(one);
  // Damage is said, and skipped.
  std::filesystem::resize_file(
      checkpoint_path(folder.path(), kStepsOfEpoch) + "/tensors.safetensors", 20);
  const auto network = make_mlp(kFeatures, one.hidden, kClasses, 99);
  const Model model(*network);
  std::vector<StateTensor> tensors;
  for (Parameter* parameter : model.parameters()) {
    tensors.push_back({parameter->name(), parameter->shape(), parameter->value()});
  }
  std::vector<std::string> lines;
  std::vector<std::string> hashes;
  const auto evaluate = [&] {
    return evaluate_checkpoints({.directory = folder.path(),
                                 .idle_seconds = 60.0,
                                 .say = [&](const std::string& line) { lines.push_back(line); }},
                                tensors, [&] {
                                  hashes.push_back(model.parameter_hash());
                                  Metrics metrics;
                                  metrics.add(1.0, 1, 2);
                                  return metrics;
                                });
  };
  EXPECT_EQ(evaluate(), 2U);
  EXPECT_EQ(hashes.back(), training.hashes[0]);
  EXPECT_THAT(lines, Contains(HasSubstr("step-21")));
  EXPECT_THAT(lines, Contains(HasSubstr("step 63: loss 0.5")));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/eval/metrics.jsonl"));
  EXPECT_EQ(evaluate(), 0U) << "it goes on after what an earlier one has scored";
}

TEST(Evaluator, EndsWhenNoCheckpointComes) {
  const TemporaryFolder folder;
  EXPECT_EQ(evaluate_checkpoints({.directory = folder.path() + "/none", .idle_seconds = 0.3}, {},
                                 [] { return Metrics(); }),
            0U);
}

}  // namespace
}  // namespace ronde::trainer
