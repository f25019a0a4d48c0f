// SPDX-License-Identifier: Apache-2.0
// Making batches, and loading Fashion-MNIST: see dataset.h.
#include "bindings/trainer/dataset.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "bindings/trainer/errors.h"
#include "bindings/trainer/idx.h"

namespace ronde::trainer {

namespace {

constexpr std::size_t kSide = 28;
constexpr std::size_t kClasses = 10;
// Of the 60,000 training images, scaled to 0..1.
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

Dataset load_part(const std::string& directory, const std::string& part) {
  const std::string images_file = existing_file(directory, part + "-images-idx3-ubyte");
  const std::string labels_file = existing_file(directory, part + "-labels-idx1-ubyte");
  IdxImages images = read_idx_images(images_file);
  if (images.rows != kSide || images.columns != kSide) {
    throw DataError(images_file + ": byte 8: images of " + std::to_string(images.rows) + " x " +
                    std::to_string(images.columns) + " pixels, expected 28 x 28: replace the file");
  }
  Dataset data;
  data.labels = read_idx_labels(labels_file, kClasses);
  if (data.labels.size() != images.count) {
    throw DataError(labels_file + ": byte 4: " + std::to_string(data.labels.size()) +
                    " labels, expected " + std::to_string(images.count) + " as " + images_file +
                    " has images: take both files from one data set");
  }
  data.pixels = std::move(images.pixels);
  data.features = kSide * kSide;
  data.classes = kClasses;
  data.mean = kMean;
  data.deviation = kDeviation;
  return data;
}

}  // namespace

void Batch::gather(const Dataset& data, std::span<const std::uint32_t> samples) {
  images.resize(samples.size(), data.features);
  labels.resize(samples.size());
  const float scale = 1.0F / (255.0F * data.deviation);
  const float shift = -data.mean / data.deviation;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::uint8_t* from = data.pixels.data() + samples[i] * data.features;
    float* to = images.row(i).data();
    for (std::size_t j = 0; j < data.features; ++j) {
      to[j] = static_cast<float>(from[j]) * scale + shift;
    }
    labels[i] = data.labels[samples[i]];
  }
}

FashionMnist load_fashion_mnist(const std::string& directory) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) {
    const bool exists = std::filesystem::exists(directory, ignored);
    throw DataError("data directory " + directory +
                    (exists ? " is no directory" : " does not exist") + kRemedy);
  }
  FashionMnist data{load_part(directory, "train"), load_part(directory, "t10k")};
  if (data.train.labels.size() < data.test.labels.size()) {
    throw DataError("data directory " + directory + ": the train files have " +
                    std::to_string(data.train.labels.size()) + " images and the t10k files " +
                    std::to_string(data.test.labels.size()) +
                    ", expected fewer for the test: have they changed places?");
  }
  return data;
}

}  // namespace ronde::trainer
