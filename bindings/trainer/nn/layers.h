// SPDX-License-Identifier: Apache-2.0
// The layers that have parameters, and those that only call an operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/nn/initialization.h"
#include "bindings/trainer/nn/layer.h"
#include "bindings/trainer/tensor/operations.h"

namespace ronde::trainer {

// input * weight + bias; the weight has a row per input and a column per output. Parameters are
// "<name>/weight" and "<name>/bias"; biases start at 0.
class Linear final : public Layer {
 public:
  Linear(const std::string& name, std::size_t inputs, std::size_t outputs,
         Initialization initialization, std::uint64_t seed);

  Tensor operator()(const Tensor& input) override;
  [[nodiscard]] std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

 private:
  Parameter weight_;
  Parameter bias_;
};

// A convolution with square windows over {samples, channels, height, width}; parameters as Linear.
class Convolution final : public Layer {
 public:
  Convolution(const std::string& name, std::size_t channels, std::size_t outputs,
              const Window& window, Initialization initialization, std::uint64_t seed);

  Tensor operator()(const Tensor& input) override;
  [[nodiscard]] std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

 private:
  Window window_;
  Parameter weight_;
  Parameter bias_;
};

// A layer that only calls an operation.
class Applied final : public Layer {
 public:
  explicit Applied(Tensor (*operation)(const Tensor&)) : operation_(operation) {}
  Tensor operator()(const Tensor& input) override { return operation_(input); }

 private:
  Tensor (*operation_)(const Tensor&);
};

template <Tensor (*Operation)(const Tensor&, const Window&)>
class Pool final : public Layer {
 public:
  explicit Pool(const Window& window) : window_(window) {}
  Tensor operator()(const Tensor& input) override { return Operation(input, window_); }

 private:
  Window window_;
};
using MaxPool = Pool<max_pool>;
using AveragePool = Pool<average_pool>;

// What is dropped depends on the name: give each layer of a model its own.
class Dropout final : public Layer {
 public:
  Dropout(std::string name, double rate) : name_(std::move(name)), rate_(rate) {}
  Tensor operator()(const Tensor& input) override { return dropout(input, rate_, name_); }

 private:
  std::string name_;
  double rate_;
};

}  // namespace ronde::trainer
