// SPDX-License-Identifier: Apache-2.0
// Layers one after the other, said in a line: {dense(128, relu), dense(10)}. Their sizes are found
// from the shape of a sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/nn/batch_norm.h"
#include "bindings/trainer/nn/initialization.h"
#include "bindings/trainer/nn/layer.h"
#include "bindings/trainer/nn/layers.h"
#include "bindings/trainer/tensor/operations.h"

namespace ronde::trainer {

// How a layer, or a layer with what follows it, is made once the shape of its input is known. A
// copy makes another one. Layers are called by kind and number ("fc1", "fc2", "conv1", "norm1",
// "dropout1") unless they are named, and weights begin as what follows them wants
// (Initialization).
class LayerMaker {
 public:
  struct Place {
    std::string name;
    Initialization initialization;
    std::uint64_t seed;
  };
  // `shape` is that of a sample of the input, and then of the output.
  using Make = std::function<std::unique_ptr<Layer>(Shape& shape, const Place& place)>;
  struct Piece {
    std::string kind;
    std::string name;
    Make make;
  };

  LayerMaker(std::string kind, Make make) {
    pieces_.push_back({std::move(kind), "", std::move(make)});
  }
  // flatten, or an operation that keeps the shape, as relu does.
  LayerMaker(Tensor (*operation)(const Tensor&));  // NOLINT(google-explicit-constructor): in lists
  [[nodiscard]] LayerMaker named(std::string name) const;
  [[nodiscard]] LayerMaker then(const LayerMaker& next) const;
  [[nodiscard]] const std::vector<Piece>& pieces() const noexcept { return pieces_; }

 private:
  std::vector<Piece> pieces_;
};

// The shape of a sample, in front of the layers: without it the first data set says it.
[[nodiscard]] LayerMaker input(Shape sample);
[[nodiscard]] LayerMaker dense(std::size_t outputs);
[[nodiscard]] LayerMaker dense(std::size_t outputs, const LayerMaker& activation);
[[nodiscard]] LayerMaker convolution(std::size_t outputs, const Window& window);
[[nodiscard]] LayerMaker max_pool(const Window& window);
[[nodiscard]] LayerMaker batch_norm(SumOverRanks sum = {});
[[nodiscard]] LayerMaker dropout(double rate);

// The shape that input() says; empty: none does.
[[nodiscard]] Shape input_of(const std::vector<LayerMaker>& layers);
// Throws TrainerError for a layer that does not fit what is in front of it.
[[nodiscard]] std::unique_ptr<Layers> make_layers(const std::vector<LayerMaker>& layers,
                                                  Shape sample, std::uint64_t seed);

}  // namespace ronde::trainer
