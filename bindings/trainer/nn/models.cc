// SPDX-License-Identifier: Apache-2.0
// Models as sequences of layers.
#include "bindings/trainer/nn/models.h"

#include "bindings/trainer/nn/sequence.h"

namespace ronde::trainer {

namespace {

constexpr Window kConvolution{.side = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
constexpr Window kHalf{.side = {2, 2}, .stride = {2, 2}, .padding = {0, 0}};

}  // namespace

std::unique_ptr<Layers> make_mlp(std::size_t inputs, std::size_t hidden, std::size_t classes,
                                 std::uint64_t seed) {
  return make_layers({dense(hidden, relu), dense(classes)}, {inputs}, seed);
}

std::unique_ptr<Layers> make_cnn(const CnnOptions& options, std::uint64_t seed) {
  const auto part = [&options](std::size_t outputs) {
    const LayerMaker made = convolution(outputs, kConvolution);
    return (options.batch_norm ? made.then(batch_norm(options.sum_over_ranks)) : made).then(relu);
  };
  const LayerMaker half = max_pool(kHalf);
  return make_layers({part(32), half, part(64), half, part(128), flatten, dense(320, relu),
                      dense(options.classes)},
                     {1, 28, 28}, seed);
}

}  // namespace ronde::trainer
