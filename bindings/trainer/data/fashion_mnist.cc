// SPDX-License-Identifier: Apache-2.0
// Finding and checking the four files of Fashion-MNIST.
#include "bindings/trainer/data/fashion_mnist.h"

#include <filesystem>
#include <system_error>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

constexpr std::size_t kSide = 28;
// These are those of the 60,000 training images, scaled to 0..1.
constexpr float kMean = 0.2860406F;
constexpr float kDeviation = 0.3530242F;
constexpr const char* kRemedy =
    ": install the package dataset-fashion-mnist, or give the directory that has the data";

std::string existing_file(const std::string& directory, const std::string& name) {
  const std::filesystem::path plain = std::filesystem::path(directory) / name;
  std::error_code ignored;
  for (const std::string& candidate : {plain.string() + ".gz", plain.string()}) {
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  }
  throw DataError("data directory " + directory + " has no file " + name + ".gz" + kRemedy);
}

Images load_part(const std::string& directory, const std::string& part) {
  const std::string images_file = existing_file(directory, part + "-images-idx3-ubyte");
  const std::string labels_file = existing_file(directory, part + "-labels-idx1-ubyte");
  Images images = read_images(images_file, labels_file, kFashionMnistClasses.size());
  if (images.height != kSide || images.width != kSide) {
    throw DataError(images_file + ": byte 8: images of " + std::to_string(images.height) + " x " +
                    std::to_string(images.width) + " pixels, expected 28 x 28: replace the file");
  }
  images.mean = kMean;
  images.deviation = kDeviation;
  return images;
}

}  // namespace

FashionMnist load_fashion_mnist(const std::string& directory) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) {
    const bool exists = std::filesystem::exists(directory, ignored);
    throw DataError("data directory " + directory +
                    (exists ? " is no directory" : " does not exist") + kRemedy);
  }
  FashionMnist data{load_part(directory, "train"), load_part(directory, "t10k")};
  if (data.train.size() < data.test.size()) {
    throw DataError("data directory " + directory + ": the train files have " +
                    std::to_string(data.train.size()) + " images and the t10k files " +
                    std::to_string(data.test.size()) +
                    ", expected fewer for the test: have they changed places?");
  }
  return data;
}

FashionMnist no_fashion_mnist() {
  const Images none{.height = 28, .width = 28, .classes = 10, .pixels = {}, .labels = {}};
  return {none, none};
}

}  // namespace ronde::trainer
