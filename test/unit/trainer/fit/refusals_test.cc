// SPDX-License-Identifier: Apache-2.0
// What would train wrongly without a word ends on every rank with an error that says what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <ronde/ronde.hpp>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/trainer/data/dataset.h"
#include "bindings/trainer/fit/fit.h"
#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/nn/batch_norm.h"
#include "bindings/trainer/nn/layers.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/operations.h"
#include "test/unit/trainer/data/toy_data.h"
#include "test/unit/trainer/fit/toy_training.h"
#include "test/unit/trainer/local_ranks.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kInputs = 4;
constexpr std::size_t kOutputs = 3;

// A linear layer, and what a test adds to it.
class Plain {
 public:
  virtual ~Plain() = default;
  virtual Tensor operator()(const Tensor& input) { return last_(input); }
  [[nodiscard]] virtual std::vector<Parameter*> parameters() { return last_.parameters(); }

 protected:
  Linear last_{"last", kInputs, kOutputs, Initialization::kHe, 1};
};

// Sample i has the inputs {i, 1, 1, 1} and the label i % 3, whatever `write` makes of it.
Dataset written(std::size_t samples, const SampleGenerator& write = {}) {
  return Dataset::from_generator(
      {.shape = {kInputs}, .classes = 9, .targets = 0},
      [write](std::uint64_t epoch, std::size_t index, const SampleRoom& room) {
        std::ranges::fill(room.input, 1.0F);
        room.input[0] = static_cast<float>(index);
        *room.label = static_cast<std::uint8_t>(index % kOutputs);
        return !write || write(epoch, index, room);
      },
      samples);
}

using Use = std::function<void(ToyRank&, const Dataset& mine)>;
void fit_two_epochs(ToyRank& member, const Dataset& mine) {
  fit(member.here, member.model.learner(), mine, {.epochs = 2});
}

// The AgreedError of each of the two ranks; "none" for a rank without one.
template <typename AnyModel = Plain>
std::vector<std::string> refusals(const std::function<Dataset(std::size_t rank)>& data,
                                  const Use& use = fit_two_epochs) {
  std::vector<std::string> errors(2, "none");
  run_ranks(2, [&](const LocalJob& job, int rank) {
    AnyModel network;
    ToyRank member(job, rank, network);
    if constexpr (requires { network.engine; }) network.engine = &member.strategy.engine();
    const auto at = static_cast<std::size_t>(rank);
    try {
      use(member, data(at));
    } catch (const AgreedError& error) {
      errors[at] = error.what();
    }
  });
  return errors;
}

Dataset right_share(std::size_t rank) { return written(12).batch(6).shard(rank, 2); }

TEST(Shares, DataThatIsNotCutBetweenTheRanksIsRefused) {
  const std::vector<Use> uses{fit_two_epochs,
                              [](ToyRank& member, const Dataset& mine) {
                                (void)evaluate(member.here, member.model.learner(), mine);
                              },
                              [](ToyRank& member, const Dataset& mine) {
                                (void)predict(member.here, member.model.learner(), mine);
                              }};
  for (const Use& use : uses) {
    EXPECT_THAT(refusals(right_share, use), Each("none"));
    EXPECT_THAT(refusals([](std::size_t) { return written(12).batch(6); }, use),
                Each(AllOf(HasSubstr("not cut between the 2 ranks"),
                           HasSubstr("12 samples, batches of 6, cut for rank 0 of 1 on ranks 0, 1"),
                           HasSubstr("call shard(rank, ranks)"))));
    EXPECT_THAT(refusals([](std::size_t rank) { return written(12).batch(6).shard(rank, 3); }, use),
                Each(HasSubstr("cut for rank 1 of 3 on rank 1")));
    EXPECT_THAT(refusals([](std::size_t) { return written(12).batch(6).shard(0, 2); }, use),
                Each(HasSubstr("cut for rank 0 of 2 on ranks 0, 1")));
    EXPECT_THAT(
        refusals([](std::size_t rank) { return written(12 + rank).batch(6).shard(rank, 2); }, use),
        Each(HasSubstr("13 samples, batches of 6, cut for rank 1 of 2 on rank 1")));
  }
}

class ForgetsALayer final : public Plain {
 public:
  Tensor operator()(const Tensor& input) override { return last_(hidden_(input)); }

 private:
  Linear hidden_{"hidden", kInputs, kInputs, Initialization::kHe, 1};
};

class ForgetsStatistics final : public Plain {
 public:
  Tensor operator()(const Tensor& input) override { return last_(norm_(input)); }
  [[nodiscard]] std::vector<Parameter*> parameters() override {
    std::vector<Parameter*> all = norm_.parameters();
    for (Parameter* const one : last_.parameters()) all.push_back(one);
    return all;
  }

 private:
  BatchNorm norm_{"norm", kInputs};
};

TEST(Listed, ALayerOrStatisticsThatTheModelDoesNotListAreNamed) {
  EXPECT_THAT(refusals<ForgetsALayer>(right_share),
              Each(AllOf(HasSubstr("hidden/weight"),
                         HasSubstr(" are used but not listed by parameters()"))));
  EXPECT_THAT(refusals<ForgetsStatistics>(right_share),
              Each(HasSubstr("norm/mean, norm/variance are used but not listed by statistics()")));
}

class SumsStatistics final : public Plain {
 public:
  Tensor operator()(const Tensor& input) override { return last_(norm_(input)); }
  [[nodiscard]] std::vector<Parameter*> parameters() override {
    std::vector<Parameter*> all = norm_.parameters();
    for (Parameter* const one : last_.parameters()) all.push_back(one);
    return all;
  }
  [[nodiscard]] std::vector<StateTensor> statistics() { return norm_.statistics(); }

  Engine* engine = nullptr;

 private:
  BatchNorm norm_{"norm", kInputs, [this](std::span<double> sums) {
                    engine->allreduce_blocking("norm", sums, ronde::sum);
                  }};
};

class NeedsSamples final : public Plain {
 public:
  Tensor operator()(const Tensor& input) override {
    if (input.side(0) == 0) throw TrainerError("nothing to normalise by");
    return last_(input);
  }
};

TEST(Failures, ASampleThatOneRankCannotHaveIsSaidOnAllOfThem) {
  for (const std::size_t ahead : {0U, 1U}) {
    const auto lost = [ahead](std::size_t rank) {
      // Samples 9 to 11 are those of rank 1 in step 2.
      return written(12,
                     [](auto, std::size_t index, auto&) {
                       if (index == 10) throw std::runtime_error("picture 10 is lost");
                       return true;
                     })
          .batch(6)
          .shard(rank, 2)
          .prefetch(ahead);
    };
    constexpr const char* kText = "step 2 of epoch 1: rank 1: picture 10 is lost";
    EXPECT_THAT(refusals(lost), Each(kText));
    EXPECT_THAT(refusals<NeedsSamples>(lost), Each(kText));
    EXPECT_THAT(refusals<SumsStatistics>(lost), Each(kText)) << "which waits in forward, too";
  }
  EXPECT_THAT(refusals<SumsStatistics>(right_share), Each("none"));
}

// A loop of the program's own, in which one rank passes over a batch: its loss was no number, say.
TEST(Failures, ABatchThatOneRankLeavesOutIsAnErrorOnAllRanks) {
  const std::vector<std::string> names{"0", "1", "2", "1000000000", "1000000001", "1000000002"};
  for (const std::uint64_t left_out : {0U, 3U, 5U}) {  // 5 is the last one of an epoch
    std::vector<std::string> errors(2, "none");
    run_ranks(2, [&](const LocalJob& job, int rank) {
      Plain network;
      ToyRank member(job, rank, network);
      const Dataset mine = written(12).batch(4).shard(static_cast<std::size_t>(rank), 2);
      std::uint64_t number = 0;
      try {
        for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
          Epoch batches = mine.epoch(epoch);
          while (const StepBatch* const batch = batches.next()) {
            if (number++ != left_out || rank == 0) member.model.learner().step(*batch, epoch);
          }
        }
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
    EXPECT_THAT(errors, Each(HasSubstr("the ranks are in different steps")));
    EXPECT_THAT(errors[0], HasSubstr("rank 0 is in step " + names[left_out] + ","));
  }
}

TEST(Failures, ALabelWithoutAnOutputIsSaidOnAllRanks) {
  const auto wrong = [](std::size_t rank) {
    return written(12,
                   [](auto, std::size_t index, const SampleRoom& room) {
                     if (index == 10) *room.label = kOutputs;
                     return true;
                   })
        .batch(6)
        .shard(rank, 2);
  };
  EXPECT_THAT(refusals(wrong), Each(AllOf(HasSubstr("step 2 of epoch 1: rank 1: label 3 in row 1 "
                                                    "of a replica's part of a batch has no output"),
                                          testing::Not(HasSubstr("learning rate")))));
}

TEST(Failures, OfAnEvaluationAreSaidOnAllRanksThatAskWhetherToStop) {
  const Use evaluate_asking = [](ToyRank& member, const Dataset& mine) {
    (void)evaluate(member.here, member.model.learner(), mine, [&] {
      std::vector<float> stop{0.0F};
      member.strategy.engine().allreduce_blocking("stop", stop, ronde::sum);
      return stop[0] != 0.0F;
    });
  };
  const auto lost = [](std::size_t rank) {
    return written(20,
                   [](auto, std::size_t index, auto&) {
                     if (index == 3) throw std::runtime_error("picture 3 is lost");
                     return true;
                   })
        .batch(4)
        .shard(rank, 2);
  };
  EXPECT_THAT(refusals(right_share, evaluate_asking), Each("none"));
  EXPECT_THAT(refusals(lost, evaluate_asking), Each("picture 3 is lost"));
  // Only the generator knows how many samples there are, and it is the model that fails.
  const auto wrong = [](std::size_t rank) {
    const SampleFormat format{.shape = {kInputs}, .classes = 9, .targets = 0};
    const auto write = [](auto, std::size_t index, const SampleRoom& room) {
      std::ranges::fill(room.input, 1.0F);
      *room.label = index == 3 ? kOutputs : 0;
      return index < 20;
    };
    return Dataset::from_generator(format, write).batch(4).shard(rank, 2);
  };
  EXPECT_THAT(refusals(wrong, evaluate_asking),
              Each(HasSubstr("label 3 in row 1 of a replica's part of a batch has no output")));
}

TEST(NotANumber, IsNoResultOfAnEvaluationOrAPrediction) {
  const auto bad = [](std::size_t rank) {
    return written(12,
                   [](auto, std::size_t index, const SampleRoom& room) {
                     if (index == 4) room.input[1] = std::numeric_limits<float>::quiet_NaN();
                     return true;
                   })
        .batch(6)
        .shard(rank, 2);
  };
  EXPECT_THAT(refusals(bad,
                       [](ToyRank& member, const Dataset& mine) {
                         (void)evaluate(member.here, member.model.learner(), mine);
                       }),
              Each(HasSubstr("the loss of the evaluation is not a number")));
  EXPECT_THAT(refusals(bad,
                       [](ToyRank& member, const Dataset& mine) {
                         (void)predict(member.here, member.model.learner(), mine);
                       }),
              Each(HasSubstr("an output for sample 4 is not a number")));
}

class NotesEpochs final : public Callback {
 public:
  void on_epoch(TrainingState& state) override {
    epochs.push_back(std::to_string(state.epoch) + (state.epoch_is_over ? " over" : " cut"));
  }
  std::vector<std::string> epochs;
};

TEST(MostSteps, AtTheEndOfAnEpochAreItsEnd) {
  const auto epochs_of = [](std::size_t most) {
    NotesEpochs notes;
    run_ranks(1, [&](const LocalJob& job, int rank) {
      Plain network;
      ToyRank member(job, rank, network);
      const std::vector<Callback*> callbacks{&notes};
      fit(member.here, member.model.learner(), written(12).batch(6),
          {.epochs = 3, .most_steps = most}, callbacks);
    });
    return notes.epochs;
  };
  EXPECT_THAT(epochs_of(2), ElementsAre("0 over"));
  EXPECT_THAT(epochs_of(3), ElementsAre("0 over", "1 cut"));
}

// Which of its inputs a dropout leaves, in each pass of a training.
class Drops final : public Plain {
 public:
  Tensor operator()(const Tensor& input) override {
    const Tensor left = drop_(input);
    std::vector<bool> mask;
    for (const float value : left.values()) mask.push_back(value != 0.0F);
    masks.insert(mask);
    return last_(left);
  }
  std::set<std::vector<bool>> masks;

 private:
  Dropout drop_{"drop", 0.5};
};

TEST(Dropout, DrawsAnewInEachRepetitionOfASample) {
  run_ranks(1, [](const LocalJob& job, int rank) {
    Drops network;
    ToyRank member(job, rank, network);
    // 32 numbers of 8 samples with no zero among them.
    const Dataset ones = written(8, [](auto, auto, const SampleRoom& room) {
      room.input[0] = 1.0F;
      return true;
    });
    fit(member.here, member.model.learner(), ones.repeat(5).batch(8), {.epochs = 1});
    EXPECT_EQ(network.masks.size(), 5U) << "the trial has the mask of the first step";
  });
}

}  // namespace
}  // namespace ronde::trainer
