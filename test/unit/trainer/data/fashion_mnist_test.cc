// SPDX-License-Identifier: Apache-2.0
// The four files of Fashion-MNIST as a whole.
#include "bindings/trainer/data/fashion_mnist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/data/data_files.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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
      (void)load_fashion_mnist(folder_);
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
  EXPECT_EQ(data.train.features(), 784U);
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
