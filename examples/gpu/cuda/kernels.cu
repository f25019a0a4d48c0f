// SPDX-License-Identifier: Apache-2.0
// The kernels, and the functions of the host that launch them; only nvcc reads this file.
#include "examples/gpu/cuda/kernels.cuh"

#include <algorithm>

namespace ronde::examples::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kMostBlocks = 2048;

unsigned blocks_for(std::size_t count) {
  return static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMostBlocks));
}

// A thread handles the element of this index and those a whole grid further on.
__device__ std::size_t first() { return std::size_t{blockIdx.x} * kThreads + threadIdx.x; }
__device__ std::size_t stride() { return std::size_t{gridDim.x} * kThreads; }

__global__ void normalize_kernel(const std::uint8_t* from, float* to, std::size_t count,
                                 float scale, float shift) {
  for (std::size_t i = first(); i < count; i += stride()) {
    to[i] = static_cast<float>(from[i]) * scale + shift;
  }
}

__global__ void add_to_rows_kernel(const float* row, float* matrix, std::size_t count,
                                   std::size_t columns) {
  for (std::size_t i = first(); i < count; i += stride()) matrix[i] += row[i % columns];
}

// Each thread sums a column: neighbouring threads read neighbouring elements.
__global__ void sum_of_rows_kernel(const float* matrix, float* row, std::size_t rows,
                                   std::size_t columns) {
  for (std::size_t j = first(); j < columns; j += stride()) {
    float sum = 0.0F;
    for (std::size_t i = 0; i < rows; ++i) sum += matrix[i * columns + j];
    row[j] = sum;
  }
}

__global__ void relu_kernel(float* values, std::size_t count) {
  for (std::size_t i = first(); i < count; i += stride()) {
    values[i] = values[i] > 0.0F ? values[i] : 0.0F;
  }
}

__global__ void relu_backward_kernel(const float* output, float* gradient, std::size_t count) {
  for (std::size_t i = first(); i < count; i += stride()) {
    gradient[i] = output[i] > 0.0F ? gradient[i] : 0.0F;
  }
}

// One block sums in a fixed order, so that the loss is the same in every run; each thread has a
// row.
__global__ void softmax_kernel(Softmax task) {
  __shared__ double losses[kThreads];
  __shared__ long long rights[kThreads];
  double loss = 0.0;
  long long right = 0;
  for (std::size_t i = threadIdx.x; i < task.rows; i += kThreads) {
    const float* const row = task.logits + i * task.columns;
    const std::size_t label = task.labels[i];
    std::size_t largest = 0;
    for (std::size_t j = 1; j < task.columns; ++j) {
      if (row[j] > row[largest]) largest = j;
    }
    // Subtracting the largest logit changes nothing but keeps exp() from overflowing.
    const double top = row[largest];
    double total = 0.0;
    for (std::size_t j = 0; j < task.columns; ++j) total += exp(row[j] - top);
    loss += log(total) - (row[label] - top);
    right += largest == label ? 1 : 0;
    if (task.gradient == nullptr) continue;
    float* const out = task.gradient + i * task.columns;
    for (std::size_t j = 0; j < task.columns; ++j) {
      const double target = j == label ? 1.0 : 0.0;
      out[j] = static_cast<float>((exp(row[j] - top) / total - target) * task.share);
    }
  }
  losses[threadIdx.x] = loss;
  rights[threadIdx.x] = right;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x >= half) continue;
    losses[threadIdx.x] += losses[threadIdx.x + half];
    rights[threadIdx.x] += rights[threadIdx.x + half];
  }
  if (threadIdx.x == 0) {
    *task.loss += losses[0];
    *task.correct += rights[0];
  }
}

__global__ void sgd_kernel(float* value, float* velocity, const float* gradient, std::size_t count,
                           float learning_rate, float momentum) {
  for (std::size_t i = first(); i < count; i += stride()) {
    float step = gradient[i];
    if (velocity != nullptr) {
      step += momentum * velocity[i];
      velocity[i] = step;
    }
    value[i] -= learning_rate * step;
  }
}

}  // namespace

void normalize(const std::uint8_t* from, float* to, std::size_t count, float scale, float shift,
               cudaStream_t stream) {
  if (count == 0) return;
  normalize_kernel<<<blocks_for(count), kThreads, 0, stream>>>(from, to, count, scale, shift);
}

void add_to_rows(const float* row, float* matrix, std::size_t rows, std::size_t columns,
                 cudaStream_t stream) {
  const std::size_t count = rows * columns;
  if (count == 0) return;
  add_to_rows_kernel<<<blocks_for(count), kThreads, 0, stream>>>(row, matrix, count, columns);
}

void sum_of_rows(const float* matrix, float* row, std::size_t rows, std::size_t columns,
                 cudaStream_t stream) {
  if (columns == 0) return;
  sum_of_rows_kernel<<<blocks_for(columns), kThreads, 0, stream>>>(matrix, row, rows, columns);
}

void relu(float* values, std::size_t count, cudaStream_t stream) {
  if (count == 0) return;
  relu_kernel<<<blocks_for(count), kThreads, 0, stream>>>(values, count);
}

void relu_backward(const float* output, float* gradient, std::size_t count, cudaStream_t stream) {
  if (count == 0) return;
  relu_backward_kernel<<<blocks_for(count), kThreads, 0, stream>>>(output, gradient, count);
}

void softmax_cross_entropy(const Softmax& task, cudaStream_t stream) {
  if (task.rows == 0) return;
  softmax_kernel<<<1, kThreads, 0, stream>>>(task);
}

void sgd(float* value, float* velocity, const float* gradient, std::size_t count,
         float learning_rate, float momentum, cudaStream_t stream) {
  if (count == 0) return;
  sgd_kernel<<<blocks_for(count), kThreads, 0, stream>>>(value, velocity, gradient, count,
                                                         learning_rate, momentum);
}

}  // namespace ronde::examples::cuda
