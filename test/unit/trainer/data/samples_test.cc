// SPDX-License-Identifier: Apache-2.0
// What a sample is when it comes again, and when its generator does not write it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "bindings/trainer/data/dataset.h"
#include "test/unit/trainer/data/numbered_data.h"
#include "test/unit/trainer/error_of.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using Numbers = std::vector<std::uint32_t>;

Numbers repetitions_of(const Dataset& data, std::uint64_t epoch) {
  Numbers all;
  Epoch batches = data.epoch(epoch);
  while (const StepBatch* step = batches.next()) {
    for (const Batch& part : step->parts) {
      EXPECT_EQ(part.repetitions.size(), part.size());
      all.insert(all.end(), part.repetitions.begin(), part.repetitions.end());
    }
  }
  return all;
}

TEST(Repetitions, CountFromTheBeginOfEachEpoch) {
  for (const Dataset& data : {numbered(3), numbered_stream(3)}) {
    EXPECT_THAT(repetitions_of(data.batch(2), 7), Each(0U));
    for (const std::uint64_t epoch : {0U, 1U, 5U}) {
      EXPECT_THAT(repetitions_of(data.take(2).repeat(3).batch(2), epoch),
                  ElementsAre(0, 0, 1, 1, 2, 2));
      EXPECT_THAT(repetitions_of(data.take(1).repeat(2).repeat(3).batch(5), epoch),
                  ElementsAre(0, 1, 2, 3, 4, 5));
      EXPECT_THAT(repetitions_of(data.take(1).repeat(4).batch(4).shard(1, 2), epoch),
                  ElementsAre(2, 3));
    }
  }
  EXPECT_EQ(error_of([] { (void)numbered(0).repeat(std::numeric_limits<std::uint32_t>::max()); }),
            "no error");
  EXPECT_THAT(error_of([] { (void)numbered(0).repeat(1U << 16U).repeat(1U << 16U); }),
              AllOf(HasSubstr("more passes than 32 bits"), HasSubstr("repeat less often")));
}

TEST(Repetitions, ADataSetWithoutSamplesEndsAtOnceHoweverOftenItIsRepeated) {
  constexpr std::size_t kOften = std::numeric_limits<std::uint32_t>::max();
  for (const Dataset& data : {numbered(5).take(0), numbered(0), numbered_stream(0)}) {
    EXPECT_EQ(data.repeat(kOften).batch(2).epoch(0).next(), nullptr);
    EXPECT_EQ(data.repeat(kOften).batch(2).prefetch(1).epoch(3).next(), nullptr);
  }
}

// The error of the samples 0 to 3 of a generator that leaves what `writes` does not write alone.
std::string error_of_generator(const SampleGenerator& writes, std::size_t classes = 10) {
  const Dataset data = Dataset::from_generator(
      {.shape = {2}, .classes = classes, .targets = 2},
      [writes](std::uint64_t epoch, std::size_t index, const SampleRoom& room) {
        if (index == 0) {
          room.input[0] = room.input[1] = room.targets[0] = room.targets[1] = 1.0F;
          *room.label = 1;
        } else {
          writes(epoch, index, room);
        }
        return true;
      },
      4);
  return error_of([&] {
    Epoch epoch = data.batch(1).epoch(0);  // the memory of sample 0 is that of the others
    while (epoch.next() != nullptr) continue;
  });
}

TEST(Generators, WriteAllOfASampleOrAreRefused) {
  const auto write = [](bool inputs, bool targets, std::int32_t label) {
    return [=](std::uint64_t /*epoch*/, std::size_t /*index*/, const SampleRoom& room) {
      room.input[0] = 2.0F;
      room.targets[0] = std::numeric_limits<float>::quiet_NaN();  // written, whatever it is
      if (inputs) room.input[1] = 2.0F;
      if (targets) room.targets[1] = 2.0F;
      if (label != 0) *room.label = label;
      return true;
    };
  };
  EXPECT_EQ(error_of_generator(write(true, true, 2)), "no error");
  EXPECT_THAT(error_of_generator(write(false, true, 2)),
              AllOf(HasSubstr("not written number 1 of the input of sample 1"),
                    HasSubstr("write all of each sample")));
  EXPECT_THAT(error_of_generator(write(true, false, 2)),
              HasSubstr("not written number 1 of the targets of sample 1"));
  EXPECT_THAT(error_of_generator(write(true, true, 0)),
              HasSubstr("not written the label of sample 1"));
  EXPECT_EQ(error_of_generator(write(true, true, 299), 300), "no error");
  EXPECT_THAT(error_of_generator(write(true, true, -1), 300), HasSubstr("has the label -1"));
}

TEST(Labels, WithoutClassesAreNamedAsSuch) {
  Images images;
  images.height = images.width = 1;
  images.pixels = {1};
  images.labels = {0};
  EXPECT_THAT(error_of([&] { (void)Dataset::from_images(images, ImageShape::kFlat); }),
              HasSubstr("expected none, since there are 0 classes"));
  EXPECT_THAT(error_of([&] { (void)select_classes(images, {0, 1}); }), HasSubstr("0 classes"));
}

}  // namespace
}  // namespace ronde::trainer
