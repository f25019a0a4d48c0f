// SPDX-License-Identifier: Apache-2.0
// The kernels of a multilayer perceptron beside its matrix products; each does what the function of
// its name in examples/gpu/device_math.h says. Row-major; counts of 0 launch nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ronde::examples::cuda {

// The fields of trainer::SoftmaxTask, whose header nvcc cannot compile.
struct Softmax {
  const float* logits;
  const std::uint8_t* labels;
  float* gradient;
  double* loss;
  long long* correct;
  std::size_t rows;
  std::size_t columns;
  double share;  // 1 / global batch
};

void normalize(const std::uint8_t* from, float* to, std::size_t count, float scale, float shift,
               cudaStream_t stream);
void add_to_rows(const float* row, float* matrix, std::size_t rows, std::size_t columns,
                 cudaStream_t stream);
void sum_of_rows(const float* matrix, float* row, std::size_t rows, std::size_t columns,
                 cudaStream_t stream);
void relu(float* values, std::size_t count, cudaStream_t stream);
void relu_backward(const float* output, float* gradient, std::size_t count, cudaStream_t stream);
void softmax_cross_entropy(const Softmax& task, cudaStream_t stream);
void sgd(float* value, float* velocity, const float* gradient, std::size_t count,
         float learning_rate, float momentum, cudaStream_t stream);

}  // namespace ronde::examples::cuda
