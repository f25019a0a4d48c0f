// SPDX-License-Identifier: Apache-2.0
// Models as sequences of layers.
#include "bindings/trainer/nn/models.h"

#include <string>

#include "bindings/trainer/nn/layers.h"

namespace ronde::trainer {

namespace {

constexpr Window kConvolution{.side = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
constexpr Window kHalf{.side = {2, 2}, .stride = {2, 2}, .padding = {0, 0}};

void add_convolution(Sequential& model, const std::string& number, std::size_t channels,
                     std::size_t outputs, Initialization initialization, const CnnOptions& options,
                     std::uint64_t seed) {
  model.add<Convolution>("conv" + number, channels, outputs, kConvolution, initialization, seed);
  if (options.batch_norm) model.add<BatchNorm>("norm" + number, outputs, options.sum_over_ranks);
  model.add<Relu>();
}

}  // namespace

std::unique_ptr<Sequential> make_mlp(std::size_t inputs, std::size_t hidden, std::size_t classes,
                                     std::uint64_t seed) {
  auto model = std::make_unique<Sequential>();
  model->add<Linear>("fc1", inputs, hidden, Initialization::kHe, seed);
  model->add<Relu>();
  model->add<Linear>("fc2", hidden, classes, Initialization::kGlorot, seed);
  return model;
}

std::unique_ptr<Sequential> make_cnn(const CnnOptions& options, std::uint64_t seed) {
  constexpr std::size_t kFeatures = 128 * 7 * 7;
  constexpr std::size_t kHidden = 320;
  auto model = std::make_unique<Sequential>();
  add_convolution(*model, "1", 1, 32, Initialization::kLecun, options, seed);
  model->add<MaxPool>(kHalf);
  add_convolution(*model, "2", 32, 64, Initialization::kLecun, options, seed);
  model->add<MaxPool>(kHalf);
  add_convolution(*model, "3", 64, 128, Initialization::kHe, options, seed);
  model->add<Flatten>();
  model->add<Linear>("fc1", kFeatures, kHidden, Initialization::kHe, seed);
  model->add<Relu>();
  model->add<Linear>("fc2", kHidden, options.classes, Initialization::kGlorot, seed);
  return model;
}

}  // namespace ronde::trainer
