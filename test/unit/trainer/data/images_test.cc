// SPDX-License-Identifier: Apache-2.0
// Images from a pair of files, and two classes of them.
#include "bindings/trainer/data/images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/data/data_files.h"

namespace ronde::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ReadImages : public DataFiles {};

TEST_F(ReadImages, KeepsTheSidesOfAnImage) {
  const Images images =
      read_images(write("images", image_bytes(3, 4, 5)), write("labels.gz", label_bytes(3)), 10);
  EXPECT_EQ(images.size(), 3U);
  EXPECT_EQ(images.height, 4U);
  EXPECT_EQ(images.width, 5U);
  EXPECT_EQ(images.features(), 20U);
  EXPECT_THAT(images.labels, ElementsAre(0, 1, 2));
}

TEST_F(ReadImages, RefusesFilesOfDifferentDataSets) {
  const std::string images = write("images", image_bytes(3, 4, 5));
  const std::string labels = write("labels", label_bytes(4));
  try {
    (void)read_images(images, labels, 10);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("labels: byte 4: 4 labels, expected 3 as "));
  }
}

Images five_images() {
  Images images;
  images.height = 1;
  images.width = 2;
  images.classes = 4;
  images.pixels = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  images.labels = {3, 0, 1, 3, 1};
  images.mean = 0.25F;
  images.deviation = 0.5F;
  return images;
}

TEST(SelectClasses, NumbersThemInTheOrderGiven) {
  const Images chosen = select_classes(five_images(), {3, 1});
  EXPECT_THAT(chosen.labels, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(chosen.pixels, ElementsAre(1, 2, 5, 6, 7, 8, 9, 10));
  EXPECT_EQ(chosen.classes, 2U);
  EXPECT_EQ(chosen.features(), 2U);
  EXPECT_EQ(chosen.mean, 0.25F);
  EXPECT_EQ(chosen.deviation, 0.5F);
  EXPECT_THAT(select_classes(five_images(), {1, 3}).labels, ElementsAre(1, 0, 1, 0));
}

TEST(SelectClasses, RefusesWhatAreNotTwoClasses) {
  try {
    (void)select_classes(five_images(), {1, 4});
    FAIL();
  } catch (const TrainerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no class 4: use 0 to 3"));
  }
  try {
    (void)select_classes(five_images(), {2, 2});
    FAIL();
  } catch (const TrainerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("class 2 is given twice"));
  }
}

}  // namespace
}  // namespace ronde::trainer
