// SPDX-License-Identifier: Apache-2.0
// The pipeline: where samples come from, their order, and how batches are cut between ranks.
#include "bindings/trainer/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "test/unit/trainer/data/data_files.h"
#include "test/unit/trainer/data/numbered_data.h"
#include "test/unit/trainer/error_of.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Images three_images() {
  Images images;
  images.height = 1;
  images.width = 2;
  images.classes = 3;
  images.pixels = {0, 255, 51, 102, 255, 0};
  images.labels = {0, 1, 2};
  images.mean = 0.5F;
  images.deviation = 0.25F;
  return images;
}

TEST(DatasetSources, ImagesAreScaledInTheShapeThatIsAskedFor) {
  const Images images = three_images();
  Epoch flat = Dataset::from_images(images, ImageShape::kFlat).batch(2).epoch(0);
  const Batch& first = flat.next()->parts.at(0);
  EXPECT_EQ(first.shape, (Shape{2, 2}));
  EXPECT_THAT(first.labels, ElementsAre(0, 1));
  EXPECT_TRUE(first.targets.empty());
  EXPECT_THAT(first.inputs,
              testing::Pointwise(testing::FloatNear(1e-5F), {-2.0F, 2.0F, -1.2F, -0.4F}));
  const StepBatch* last = flat.next();
  EXPECT_EQ(last->global_size, 1U);
  EXPECT_EQ(last->step, 1U);
  EXPECT_EQ(last->parts[0].shape, (Shape{1, 2}));
  EXPECT_EQ(flat.next(), nullptr);
  EXPECT_EQ(flat.next(), nullptr);

  const Dataset kept = Dataset::from_images(three_images(), ImageShape::kImage);
  EXPECT_EQ(kept.format().classes, 3U);
  EXPECT_EQ(kept.batch(3).epoch(0).next()->parts[0].shape, (Shape{3, 1, 1, 2}));
}

TEST(DatasetSources, ArraysKeepLabelsOrTargets) {
  const Dataset labelled =
      Dataset::from_arrays({1, 2}, {1, 2, 3, 4}, std::vector<std::uint8_t>{1, 0}, 2);
  Epoch epoch = labelled.batch(5).epoch(0);
  const Batch& batch = epoch.next()->parts[0];
  EXPECT_EQ(batch.shape, (Shape{2, 1, 2}));
  EXPECT_THAT(batch.inputs, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(batch.labels, ElementsAre(1, 0));
  EXPECT_THAT(batch.samples, ElementsAre(0, 1));

  const Dataset numbers = Dataset::from_arrays({1}, {1, 2}, std::vector<float>{5, 6, 7, 8}, 2);
  EXPECT_THAT(numbers.batch(2).epoch(0).next()->parts[0].targets, ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(Dataset::from_arrays({1}, {}, std::vector<float>{}).batch(2).epoch(0).next(), nullptr);
}

class DatasetFiles : public DataFiles {};

TEST_F(DatasetFiles, AreReadAndScaledToOne) {
  const Dataset data = Dataset::from_files(write("images", image_bytes(3, 1, 2)),
                                           write("labels", label_bytes(3)), 10, ImageShape::kImage);
  EXPECT_EQ(data.samples(), 3U);
  Epoch epoch = data.batch(3).epoch(0);
  EXPECT_FLOAT_EQ(epoch.next()->parts[0].inputs[5], 35.0F / 255.0F);
}

TEST(DatasetSources, AGeneratorOfKnownSizeIsAskedForTheSamplesOfThisRankAlone) {
  std::vector<std::size_t> asked;
  const SampleFormat format{.shape = {1}, .classes = 2, .targets = 0};
  const Dataset data = Dataset::from_generator(
      format,
      [&asked](std::uint64_t epoch, std::size_t index, const SampleRoom& room) {
        asked.push_back(index);
        room.input[0] = static_cast<float>(epoch);
        *room.label = static_cast<std::uint8_t>(index % 2);
        return true;
      },
      6);
  Epoch epoch = data.batch(6).shard(1, 3).epoch(4);
  const StepBatch* batch = epoch.next();
  EXPECT_THAT(asked, ElementsAre(2, 3));
  EXPECT_THAT(batch->parts[0].labels, ElementsAre(0, 1));
  EXPECT_THAT(batch->parts[0].inputs, ElementsAre(4, 4));
  EXPECT_EQ(data.shuffle(1).batch(6).steps(), 1U);
}

TEST(DatasetSources, EveryRankFindsTheEndOfAGeneratorOfUnknownSize) {
  const Dataset data = numbered_stream(10);
  EXPECT_EQ(data.samples(), std::nullopt);
  EXPECT_EQ(data.batch(4).steps(), std::nullopt);
  for (std::size_t ranks = 1; ranks <= 4; ++ranks) {
    Samples all;
    std::vector<float> inputs;
    for (std::size_t step = 0; step < 3; ++step) {
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        Epoch epoch = data.batch(4).shard(rank, ranks).epoch(0, step);
        const StepBatch* batch = epoch.next();
        ASSERT_NE(batch, nullptr);
        EXPECT_EQ(batch->global_size, step < 2 ? 4U : 2U);
        EXPECT_EQ(batch->step, step);
        const Batch& part = batch->parts[0];
        EXPECT_EQ(part.shape, (Shape{part.size(), 2}));
        all.insert(all.end(), part.samples.begin(), part.samples.end());
        inputs.insert(inputs.end(), part.inputs.begin(), part.inputs.end());
        if (step == 2) {
          EXPECT_EQ(epoch.next(), nullptr);
        }
      }
    }
    EXPECT_EQ(all, up_to(10)) << ranks;
    for (std::size_t i = 0; i < 10; ++i)
      EXPECT_EQ(inputs[2 * i + 1], 100.0F + static_cast<float>(i));
  }
  EXPECT_THAT(samples_of(numbered_stream(2).repeat(2).batch(3), 0), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(samples_of(numbered_stream(3).take(2).repeat(2).batch(3), 0),
              ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(samples_of(numbered_stream(2).repeat(2).take(3).batch(3), 0), ElementsAre(0, 1, 0));
  EXPECT_THAT(samples_of(numbered_stream(0).repeat(3).batch(3), 0), ElementsAre());
}

TEST(DatasetOrder, DependsOnSeedAndEpochAlone) {
  const Dataset data = numbered(100);
  const auto order = [&data](std::uint64_t seed, std::uint64_t epoch, std::size_t batch) {
    return samples_of(data.shuffle(seed).batch(batch), epoch);
  };
  EXPECT_EQ(order(1, 0, 10), order(1, 0, 7));
  EXPECT_NE(order(1, 0, 10), order(2, 0, 10));
  EXPECT_NE(order(1, 0, 10), order(1, 1, 10));
  EXPECT_EQ(samples_of(data.batch(7), 3), up_to(100));
}

TEST(DatasetOrder, StagesApplyInTheOrderOfTheCalls) {
  const Dataset data = numbered(50);
  const Samples first = samples_of(data.take(5).shuffle(1).batch(50), 0);
  EXPECT_THAT(first, testing::UnorderedElementsAre(0, 1, 2, 3, 4));
  const Samples any = samples_of(data.shuffle(1).take(5).batch(50), 0);
  Samples all = samples_of(data.shuffle(1).batch(50), 0);
  all.resize(5);
  EXPECT_EQ(any, all);
  EXPECT_THAT(samples_of(data.take(2).repeat(3).batch(4), 0), ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_THAT(samples_of(data.repeat(3).take(2).batch(4), 0), ElementsAre(0, 1));
  EXPECT_EQ(data.repeat(3).take(120).batch(7).steps(), 18U);
  // Each repetition is shuffled anew, and no epoch repeats one of another.
  const Samples twice = samples_of(data.shuffle(1).repeat(2).batch(10), 1);
  const Samples one(twice.begin(), twice.begin() + 50);
  const Samples two(twice.begin() + 50, twice.end());
  EXPECT_EQ(one, samples_of(data.shuffle(1).batch(10), 2));
  EXPECT_EQ(two, samples_of(data.shuffle(1).batch(10), 3));
  EXPECT_NE(one, two);
}

TEST(DatasetOrder, ItsSettingsAreWhatThePlaceInAnEpochMeans) {
  const Dataset data = numbered(50).shuffle(7).batch(8);
  EXPECT_EQ(data.settings(), "50 samples, shuffle 7, batches of 8");
  EXPECT_EQ(data.shard(1, 4, 2).settings(), data.settings()) << "other ranks may go on";
  EXPECT_EQ(numbered(51).take(50).repeat(2).batch(8).settings(),
            "51 samples, take 50, repeat 2, batches of 8");
  EXPECT_EQ(numbered_stream(3).batch(2).settings(), "unknown samples, batches of 2");
}

TEST(DatasetOrder, ADataSetIsAValue) {
  const Dataset data = numbered(10);
  (void)data.shuffle(1);
  (void)data.take(2);
  const Dataset batched = data.batch(4);
  (void)batched.shard(1, 2);
  EXPECT_EQ(samples_of(batched, 0), up_to(10));
  EXPECT_EQ(data.global_batch(), 0U);
}

// Every batch, put together from the parts of all ranks, is the same as on one rank; parts differ
// by at most one sample; no sample is lost or doubled; inputs belong to their samples.
void check_shards(const Dataset& batched, std::size_t ranks, std::size_t parts,
                  const std::vector<Samples>& whole) {
  std::vector<Samples> together(whole.size());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    Epoch epoch = batched.shard(rank, ranks, parts).epoch(1);
    std::size_t steps = 0;
    while (const StepBatch* step = epoch.next()) {
      ASSERT_LT(steps, whole.size());
      ASSERT_EQ(step->step, steps);
      ASSERT_EQ(step->global_size, whole[steps].size());
      ASSERT_EQ(step->parts.size(), parts);
      for (const Batch& part : step->parts) {
        const std::size_t least = step->global_size / (ranks * parts);
        ASSERT_GE(part.size(), least);
        ASSERT_LE(part.size(), least + 1);
        ASSERT_EQ(part.shape, (Shape{part.size(), 2}));
        ASSERT_EQ(part.inputs.size(), 2 * part.size());
        ASSERT_EQ(part.targets.size(), part.size());
        for (std::size_t i = 0; i < part.size(); ++i) {
          ASSERT_EQ(part.inputs[2 * i], static_cast<float>(part.samples[i]));
          ASSERT_EQ(part.targets[i], static_cast<float>(part.samples[i]));
          together[steps].push_back(part.samples[i]);
        }
      }
      ++steps;
    }
    ASSERT_EQ(steps, whole.size());
  }
  ASSERT_EQ(together, whole);
}

TEST(DatasetShards, HoldTheSameBatchesForEveryNumberOfRanksAndParts) {
  for (const std::size_t samples : {0U, 1U, 2U, 5U, 12U, 23U}) {
    for (std::size_t batch = 1; batch <= 13; ++batch) {
      const Dataset batched = numbered(samples).shuffle(3).batch(batch);
      std::vector<Samples> whole;
      for (const auto& step : parts_of(batched, 1)) whole.push_back(step.at(0));
      Samples all = samples_of(batched, 1);
      std::ranges::sort(all);
      ASSERT_EQ(all, up_to(static_cast<std::uint32_t>(samples)));
      ASSERT_EQ(whole.size(), batched.steps());
      for (std::size_t ranks = 1; ranks <= 6; ++ranks) {
        for (std::size_t parts = 1; ranks * parts <= batch; ++parts) {
          ASSERT_NO_FATAL_FAILURE(check_shards(batched, ranks, parts, whole))
              << samples << " samples, batch " << batch << ", " << ranks << " x " << parts;
          ASSERT_NO_FATAL_FAILURE(check_shards(batched.prefetch(2), ranks, parts, whole));
        }
      }
    }
  }
}

TEST(DatasetShards, MicroBatchesOfOneRankAreThoseOfSeveral) {
  const Dataset batched = numbered(11).batch(7);
  const auto alone = parts_of(batched.shard(0, 1, 4), 0);
  const auto first = parts_of(batched.shard(0, 2, 2), 0);
  const auto second = parts_of(batched.shard(1, 2, 2), 0);
  for (std::size_t step = 0; step < alone.size(); ++step) {
    EXPECT_EQ(alone[step][1], first[step][1]);
    EXPECT_EQ(alone[step][2], second[step][0]);
    EXPECT_EQ(alone[step][3], second[step][1]);
  }
}

TEST(DatasetEpoch, ResumesWithExactlyTheRest) {
  for (const Dataset& data : {numbered(23).shuffle(5).repeat(2), numbered_stream(23).repeat(2)}) {
    const Dataset batched = data.batch(6).shard(1, 2, 2);
    const auto whole = parts_of(batched, 2);
    ASSERT_EQ(whole.size(), 8U);
    for (std::size_t first = 0; first <= 10; ++first) {
      for (const std::size_t ahead : {0U, 3U}) {
        const auto rest = parts_of(batched.prefetch(ahead), 2, first);
        const auto skipped = static_cast<std::ptrdiff_t>(std::min(first, whole.size()));
        EXPECT_EQ(rest, std::vector(whole.begin() + skipped, whole.end())) << first;
      }
    }
    EXPECT_EQ(batched.epoch(2, 3).next()->step, 3U);
  }
}

TEST(DatasetErrors, WrongOrdersSayWhatToDo) {
  const Dataset data = numbered(10);
  const Dataset batched = data.batch(4);
  EXPECT_THAT(error_of([] { (void)numbered_stream(3).shuffle(1); }),
              AllOf(HasSubstr("cannot be shuffled"), HasSubstr("their number")));
  EXPECT_THAT(error_of([&] { (void)batched.shuffle(1); }),
              AllOf(HasSubstr("shuffle()"), HasSubstr("call it before batch()")));
  EXPECT_THAT(error_of([&] { (void)batched.take(1); }), HasSubstr("call it before batch()"));
  EXPECT_THAT(error_of([&] { (void)batched.repeat(2); }), HasSubstr("call it before batch()"));
  EXPECT_THAT(error_of([&] { (void)batched.batch(5); }), HasSubstr("twice, with 4 and 5"));
  EXPECT_THAT(error_of([&] { (void)data.shard(0, 2); }), HasSubstr("call batch() before it"));
  EXPECT_THAT(error_of([&] { (void)data.prefetch(2); }), HasSubstr("call batch() before it"));
  EXPECT_THAT(error_of([&] { (void)data.epoch(0); }), HasSubstr("call batch() before it"));
  EXPECT_THAT(error_of([&] { (void)batched.shard(0, 2).shard(0, 2); }), HasSubstr("twice"));
}

TEST(DatasetErrors, WrongNumbersSayWhatToUse) {
  const Dataset data = numbered(10);
  const Dataset batched = data.batch(4);
  EXPECT_THAT(error_of([&] { (void)data.batch(0); }), HasSubstr("use at least 1"));
  EXPECT_THAT(error_of([&] { (void)data.repeat(0); }), HasSubstr("at least once"));
  EXPECT_THAT(error_of([&] { (void)data.repeat(SIZE_MAX); }), HasSubstr("repeat less often"));
  EXPECT_THAT(error_of([&] { (void)batched.shard(2, 2); }), HasSubstr("no rank 2 of 2"));
  EXPECT_THAT(error_of([&] { (void)batched.shard(0, 2, 0); }), HasSubstr("at least 1 part"));
  EXPECT_THAT(error_of([&] { (void)batched.shard(0, 5); }), HasSubstr("use at least 5 x 1"));
  EXPECT_THAT(error_of([&] { (void)batched.shard(0, 2, SIZE_MAX); }), HasSubstr("too small"));
  EXPECT_THAT(error_of([&] { (void)batched.prefetch(5000); }), HasSubstr("use at most 1000"));
}

// More classes than a byte has.
TEST(Dataset, LabelsAreOfAnyIntegerType) {
  const auto labels_of = [](const auto& labels) {
    Epoch epoch = Dataset::from_arrays({1}, {1, 2}, labels, 70000).batch(2).epoch(0);
    return epoch.next()->parts[0].labels;
  };
  EXPECT_THAT(labels_of(std::vector<std::uint8_t>{0, 255}), ElementsAre(0, 255));
  EXPECT_THAT(labels_of(std::vector<std::int64_t>{69999, 256}), ElementsAre(69999, 256));
  EXPECT_THAT(labels_of(std::vector<unsigned short>{65535, 1}), ElementsAre(65535, 1));
}

TEST(DatasetErrors, WrongSamplesAreNamed) {
  using Labels = std::vector<std::uint8_t>;
  EXPECT_THAT(error_of([] { (void)Dataset::from_arrays({2}, {1, 2, 3}, Labels{0, 1}, 2); }),
              HasSubstr("3 input numbers and 2 labels"));
  EXPECT_THAT(error_of([] { (void)Dataset::from_arrays({1}, {1, 2}, Labels{0, 2}, 2); }),
              HasSubstr("sample 1 has the label 2, expected 0 to 1"));
  EXPECT_THAT(
      error_of([] { (void)Dataset::from_arrays({1}, {1}, Labels{0}, std::size_t{1} << 40); }),
      HasSubstr("at most 2147483647"));
  EXPECT_THAT(error_of([] { (void)Dataset::from_arrays({1}, {1}, std::vector<int>{-1}, 2); }),
              HasSubstr("sample 0 has the label -1, expected 0 to 1"));
  EXPECT_THAT(error_of([] {
                const std::vector<std::uint64_t> huge{(std::uint64_t{1} << 32) + 1};
                (void)Dataset::from_arrays({1}, {1}, huge, 2);
              }),
              HasSubstr("sample 0 has the label -1"));
  EXPECT_THAT(error_of([] { (void)Dataset::from_arrays({3, 0}, {}, Labels{}, 2); }),
              HasSubstr("sample of 3 x 0 has no elements"));
  Images images = three_images();
  images.labels.push_back(0);
  EXPECT_THAT(error_of([&] { (void)Dataset::from_images(images, ImageShape::kFlat); }),
              HasSubstr("6 pixels for 4 labels"));
  const SampleFormat format{.shape = {1}, .classes = 2, .targets = 0};
  const auto three = [](std::uint64_t /*epoch*/, std::size_t index, const SampleRoom& room) {
    *room.label = 3;
    return index < 3;
  };
  EXPECT_THAT(error_of([&] { (void)Dataset::from_generator(format, {}); }), HasSubstr("is empty"));
  Epoch label = Dataset::from_generator(format, three, 3).batch(2).epoch(0);
  EXPECT_THAT(error_of([&] { label.next(); }), HasSubstr("sample 0 has the label 3"));
  EXPECT_THAT(error_of([&] { label.next(); }), HasSubstr("sample 0 has the label 3"));
  Epoch early = Dataset::from_generator(
                    {.shape = {1}},
                    [](auto, std::size_t index, const SampleRoom& room) {
                      room.input[0] = 1.0F;
                      return index < 3;
                    },
                    5)
                    .batch(2)
                    .epoch(0);
  EXPECT_NE(early.next(), nullptr);
  EXPECT_THAT(error_of([&] { early.next(); }), HasSubstr("no sample 3 of the 5"));
}

}  // namespace
}  // namespace ronde::trainer
