// SPDX-License-Identifier: Apache-2.0
// Batches, and the four files of Fashion-MNIST as a whole.
#include "bindings/trainer/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bindings/trainer/errors.h"
#include "test/unit/trainer/data_files.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Batch, TakesTheSamplesAndScalesThePixels) {
  Dataset data;
  data.features = 2;
  data.classes = 3;
  data.pixels = {0, 255, 51, 102, 255, 0};
  data.labels = {0, 1, 2};
  data.mean = 0.5F;
  data.deviation = 0.25F;
  Batch batch;
  const std::vector<std::uint32_t> samples{2, 0};
  batch.gather(data, samples);
  EXPECT_THAT(batch.labels, testing::ElementsAre(2, 0));
  EXPECT_THAT(batch.images.values(),
              testing::Pointwise(testing::FloatNear(1e-5F), {2.0F, -2.0F, -2.0F, 2.0F}));
  batch.gather(data, {});
  EXPECT_EQ(batch.images.rows(), 0U);
  EXPECT_EQ(batch.images.columns(), 2U);
  EXPECT_TRUE(batch.labels.empty());
}

class FashionMnistFiles : public DataFiles {
 protected:
  void write_all() {
    write("train-images-idx3-ubyte.gz", image_bytes(12, 28, 28));
    write("train-labels-idx1-ubyte.gz", label_bytes(12));
    write("t10k-images-idx3-ubyte", image_bytes(3, 28, 28));
    write("t10k-labels-idx1-ubyte", label_bytes(3));
  }
  std::string error() {
    try {
      load_fashion_mnist(folder_);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(FashionMnistFiles, LoadsBothPartsWithAndWithoutCompression) {
  write_all();
  const FashionMnist data = load_fashion_mnist(folder_);
  EXPECT_EQ(data.train.size(), 12U);
  EXPECT_EQ(data.test.size(), 3U);
  EXPECT_EQ(data.train.features, 784U);
  EXPECT_EQ(data.train.classes, 10U);
  EXPECT_EQ(data.train.pixels.size(), 12U * 784U);
}

TEST_F(FashionMnistFiles, MissingDirectoryNamesItAndThePackage) {
  folder_ += "/none";
  EXPECT_THAT(error(), AllOf(HasSubstr("data directory " + folder_ + " does not exist"),
                             HasSubstr("dataset-fashion-mnist")));
}

TEST_F(FashionMnistFiles, MissingFileNamesItAndThePackage) {
  write_all();
  std::filesystem::remove(folder_ + "/t10k-labels-idx1-ubyte");
  EXPECT_THAT(error(), AllOf(HasSubstr("t10k-labels-idx1-ubyte"), HasSubstr(folder_),
                             HasSubstr("dataset-fashion-mnist")));
}

TEST_F(FashionMnistFiles, CountsOfImagesAndLabelsDiffer) {
  write_all();
  write("train-labels-idx1-ubyte.gz", label_bytes(11));
  EXPECT_THAT(error(), AllOf(HasSubstr("train-labels-idx1-ubyte.gz: byte 4: 11 labels"),
                             HasSubstr("expected 12"), HasSubstr("train-images")));
}

TEST_F(FashionMnistFiles, ImagesOfAnotherSize) {
  write_all();
  write("t10k-images-idx3-ubyte", image_bytes(3, 20, 28));
  EXPECT_THAT(error(), HasSubstr("byte 8: images of 20 x 28 pixels, expected 28 x 28"));
}

}  // namespace
}  // namespace ronde::trainer
