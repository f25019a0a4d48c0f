// SPDX-License-Identifier: Apache-2.0
// Dense and ReLU, forwards and backwards: see layers.h.
#include "bindings/trainer/layers.h"

#include <cmath>

#include "bindings/trainer/hash.h"
#include "bindings/trainer/random.h"

namespace ronde::trainer {

namespace {

// Half the width of the uniform distribution that keeps the variance of activations (He) or of
// activations and gradients (Glorot) the same from layer to layer. A square root is exact to the
// bit everywhere, which the logarithms and cosines of a normal distribution are not.
float initial_bound(Initialization initialization, std::size_t inputs, std::size_t outputs) {
  const std::size_t fan = initialization == Initialization::kHe ? inputs : inputs + outputs;
  return std::sqrt(6.0F / static_cast<float>(fan));
}

void zero_like(Parameter& parameter, std::string name, std::size_t rows, std::size_t columns) {
  parameter.name = std::move(name);
  parameter.value = Matrix(rows, columns);
  parameter.gradient = Matrix(rows, columns);
}

}  // namespace

Dense::Dense(std::string_view name, std::size_t inputs, std::size_t outputs,
             Initialization initialization, std::uint64_t seed) {
  zero_like(weight_, std::string(name) + "/weight", inputs, outputs);
  zero_like(bias_, std::string(name) + "/bias", 1, outputs);
  Hash stream;
  stream.add(std::as_bytes(std::span(weight_.name)));
  Generator generator(seed, stream.value());
  const float bound = initial_bound(initialization, inputs, outputs);
  for (float& value : weight_.value.values()) value = generator.uniform(-bound, bound);
}

void Dense::forward(const Matrix& input, Matrix& output) const {
  const std::span<const float> bias = bias_.value.values();
  output.resize(input.rows(), bias.size());
  for (std::size_t i = 0; i < output.rows(); ++i) {
    std::copy(bias.begin(), bias.end(), output.row(i).begin());
  }
  multiply_add(input, weight_.value, output);
}

void Dense::backward(const Matrix& input, const Matrix& /*output*/, const Matrix& output_gradient,
                     Matrix* input_gradient, const GradientReady& ready) {
  multiply_transposed_left(input, output_gradient, weight_.gradient);
  ready(weight_);

  bias_.gradient.fill(0.0F);
  const std::span<float> sums = bias_.gradient.values();
  for (std::size_t i = 0; i < output_gradient.rows(); ++i) {
    const std::span<const float> row = output_gradient.row(i);
    for (std::size_t j = 0; j < row.size(); ++j) sums[j] += row[j];
  }
  ready(bias_);

  if (input_gradient == nullptr) return;
  input_gradient->resize(input.rows(), input.columns());
  multiply_transposed_right(output_gradient, weight_.value, *input_gradient);
}

void Relu::forward(const Matrix& input, Matrix& output) const {
  output.resize(input.rows(), input.columns());
  const float* from = input.data();
  float* to = output.data();
  for (std::size_t i = 0; i < input.size(); ++i) to[i] = from[i] > 0.0F ? from[i] : 0.0F;
}

void Relu::backward(const Matrix& input, const Matrix& output, const Matrix& output_gradient,
                    Matrix* input_gradient, const GradientReady& /*ready*/) {
  if (input_gradient == nullptr) return;
  input_gradient->resize(input.rows(), input.columns());
  const float* from = output_gradient.data();
  const float* active = output.data();
  float* to = input_gradient->data();
  for (std::size_t i = 0; i < output.size(); ++i) to[i] = active[i] > 0.0F ? from[i] : 0.0F;
}

}  // namespace ronde::trainer
