// SPDX-License-Identifier: Apache-2.0
// Folders of PNG files and records of CIFAR, and what is said about bad ones.
#include "bindings/trainer/data/pictures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "bindings/trainer/data/dataset.h"
#include "test/unit/trainer/data/data_files.h"
#include "test/unit/trainer/error_of.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class PictureFolders : public DataFiles {
 protected:
  // Red, green and blue of each pixel.
  void write_png(const std::string& name, std::uint32_t height, std::uint32_t width,
                 const Bytes& pixels) {
    const std::filesystem::path path = std::filesystem::path(folder_) / name;
    std::filesystem::create_directories(path.parent_path());
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = width;
    image.height = height;
    image.format = PNG_FORMAT_RGB;
    ASSERT_NE(png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr), 0);
  }
  std::string pictures_error() {
    return error_of([&] { (void)read_pictures(folder_); });
  }
};

TEST_F(PictureFolders, GiveLabelsByName) {
  write_png("shirt/b.png", 1, 2, {1, 2, 3, 4, 5, 6});
  write_png("coat/z.png", 1, 2, {7, 8, 9, 10, 11, 12});
  write_png("shirt/a.png", 1, 2, {13, 14, 15, 16, 17, 18});
  write("shirt/notes.txt", {1});
  write(".hidden", {1});
  const Pictures read = read_pictures(folder_);
  EXPECT_THAT(read.classes, ElementsAre("coat", "shirt"));
  EXPECT_THAT(read.images.labels, ElementsAre(0, 1, 1));
  EXPECT_EQ(read.images.height, 1U);
  EXPECT_EQ(read.images.width, 2U);
  // Channel by channel.
  EXPECT_THAT(read.images.pixels,
              ElementsAre(7, 10, 8, 11, 9, 12, 13, 16, 14, 17, 15, 18, 1, 4, 2, 5, 3, 6));
  EXPECT_EQ(read_pictures(folder_, 1).images.pixels.size(), 6U);
  Epoch epoch = Dataset::from_images(read.images, ImageShape::kImage).batch(3).epoch(0);
  EXPECT_THAT(epoch.next()->parts.front().shape, ElementsAre(3, 3, 1, 2));
}

TEST_F(PictureFolders, RefuseWhatIsNoSetOfPictures) {
  EXPECT_THAT(pictures_error(), HasSubstr("has 0 folders"));
  EXPECT_THAT(error_of([&] { (void)read_pictures(folder_ + "/none"); }),
              HasSubstr("cannot be read"));
  std::filesystem::create_directory(folder_ + "/empty");
  EXPECT_THAT(pictures_error(), HasSubstr("has no .png files"));
  std::filesystem::remove(folder_ + "/empty");
  write_png("coat/a.png", 1, 1, {1, 2, 3});
  write_png("coat/b.png", 1, 2, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(pictures_error(), AllOf(HasSubstr("b.png: is 1 x 2"), HasSubstr("are 1 x 1")));
  write("coat/b.png", {1, 2, 3});
  EXPECT_THAT(pictures_error(), AllOf(HasSubstr("b.png: cannot be read as PNG")));
}

TEST_F(PictureFolders, ReadRecordsOfCifar) {
  Bytes two(2 * 3073, 9);
  two[0] = 4;
  two[3073] = 7;
  two[3074] = 200;
  const Images images = read_cifar({write("a.bin", two), write("b.bin", two)});
  EXPECT_THAT(images.labels, ElementsAre(4, 7, 4, 7));
  EXPECT_EQ(images.pixels.size(), 4U * 3072U);
  EXPECT_EQ(images.pixels[3072], 200);
  EXPECT_EQ(images.features(), 3072U);
  two.pop_back();
  const std::string cut = write("cut.bin", two);
  EXPECT_THAT(error_of([&] { (void)read_cifar({cut}); }), HasSubstr("ends within image 1"));
  const std::string empty = write("empty.bin", {});
  EXPECT_THAT(error_of([&] { (void)read_cifar({empty}); }), HasSubstr("empty.bin: has no images"));
  two[0] = 10;
  const std::string wrong = write("wrong.bin", two);
  EXPECT_THAT(error_of([&] { (void)read_cifar({wrong}); }),
              AllOf(HasSubstr("label 10"), HasSubstr("0 to 9")));
}

}  // namespace
}  // namespace ronde::trainer
