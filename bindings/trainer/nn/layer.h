// SPDX-License-Identifier: Apache-2.0
// A layer, and layers one after the other.
#pragma once

#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/trainer/tensor/parameter.h"
#include "bindings/trainer/tensor/tensor.h"

namespace ronde::trainer {

// A layer is itself a model (nn/model.h): it is called, and lists its parameters.
//
// Thread safety: belongs to one thread at a time.
class Layer {
 public:
  Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;

  // {samples, ...} to {samples, ...}, on the input's tape.
  virtual Tensor operator()(const Tensor& input) = 0;
  [[nodiscard]] virtual std::vector<Parameter*> parameters() { return {}; }
  // Running statistics; none for most.
  [[nodiscard]] virtual std::vector<StateTensor> statistics() { return {}; }
};

// Those of several layers, for a model that is a class of its own.
[[nodiscard]] inline std::vector<Parameter*> parameters_of(std::initializer_list<Layer*> layers) {
  std::vector<Parameter*> all;
  for (Layer* const layer : layers) {
    for (Parameter* const one : layer->parameters()) all.push_back(one);
  }
  return all;
}

// Layers one after the other.
class Layers final : public Layer {
 public:
  // Makes a layer from these arguments and puts it at the end; returns it.
  template <typename AnyLayer, typename... Arguments>
  AnyLayer& add(Arguments&&... arguments) {
    auto layer = std::make_unique<AnyLayer>(std::forward<Arguments>(arguments)...);
    AnyLayer& added = *layer;
    append(std::move(layer));
    return added;
  }
  void append(std::unique_ptr<Layer> layer) { layers_.push_back(std::move(layer)); }

  Tensor operator()(const Tensor& input) override;
  [[nodiscard]] std::vector<Parameter*> parameters() override;
  [[nodiscard]] std::vector<StateTensor> statistics() override;

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace ronde::trainer
