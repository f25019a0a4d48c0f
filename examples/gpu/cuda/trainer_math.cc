// SPDX-License-Identifier: Apache-2.0
// Training on a GPU: matrix products by cuBLAS, the rest by small kernels.
#include "examples/gpu/trainer_math.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <limits>
#include <stdexcept>
#include <string>

#include "bindings/trainer/tensor/errors.h"
#include "examples/gpu/cuda/kernels.cuh"
#include "examples/gpu/cuda/stream.h"

namespace ronde::examples {

namespace {

using trainer::Product;
using trainer::TrainerError;

void check(const char* action, cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw TrainerError(std::string("cuBLAS, ") + action + ": " + cublasGetStatusString(status));
}

int blas_size(std::size_t value) {
  if (value > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw TrainerError("a matrix side of " + std::to_string(value) +
                       " is too large for cuBLAS: use a smaller batch or layer");
  }
  return static_cast<int>(value);
}

class Blas {
 public:
  explicit Blas(cudaStream_t stream) {
    check("starting", cublasCreate(&handle_));
    check("setting its stream", cublasSetStream(handle_, stream));
  }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;
  ~Blas() { (void)cublasDestroy(handle_); }
  [[nodiscard]] cublasHandle_t get() const { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
};

class CudaMath final : public trainer::DeviceMath {
 public:
  [[nodiscard]] int device() const override { return stream_.device(); }
  [[nodiscard]] void* stream() const override { return stream_.get(); }
  void wait_for(Work& work) override { work.wait(stream_.get()); }

  [[nodiscard]] void* allocate(std::size_t bytes) override { return cuda::Stream::allocate(bytes); }
  // cudaFree() waits for the device by itself.
  void release(void* memory) noexcept override { cuda::Stream::release(memory); }
  [[nodiscard]] void* allocate_staging(std::size_t bytes) override {
    return cuda::Stream::allocate_host(bytes);
  }
  void release_staging(void* memory) noexcept override { cuda::Stream::release_host(memory); }

  void send(void* to, const void* staging, std::size_t bytes) override {
    stream_.copy(to, staging, bytes);
  }
  void write(void* to, const void* host, std::size_t bytes) override {
    stream_.copy(to, host, bytes);
    stream_.finish();
  }
  void read(void* host, const void* from, std::size_t bytes) override {
    stream_.copy(host, from, bytes);
    stream_.finish();
  }
  void clear(void* memory, std::size_t bytes) override { stream_.clear(memory, bytes); }

  void multiply(const Product& product) override {
    const trainer::ColumnMajorProduct call = trainer::column_major(product);
    const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
    const float one = 1.0F;
    const float zero = 0.0F;
    check("multiplying",
          cublasSgemm(blas_.get(), operation(call.left_transposed),
                      operation(call.right_transposed), blas_size(call.rows),
                      blas_size(call.columns), blas_size(call.terms), &one, call.left,
                      blas_size(call.leading_left), call.right, blas_size(call.leading_right),
                      &zero, product.c, blas_size(call.leading_result)));
  }

  void normalize(const std::uint8_t* from, float* to, std::size_t count, float scale,
                 float shift) override {
    cuda::normalize(from, to, count, scale, shift, stream_.get());
    launched();
  }
  void add_to_rows(const float* row, float* matrix, std::size_t rows,
                   std::size_t columns) override {
    cuda::add_to_rows(row, matrix, rows, columns, stream_.get());
    launched();
  }
  void sum_of_rows(const float* matrix, float* row, std::size_t rows,
                   std::size_t columns) override {
    cuda::sum_of_rows(matrix, row, rows, columns, stream_.get());
    launched();
  }
  void relu(float* values, std::size_t count) override {
    cuda::relu(values, count, stream_.get());
    launched();
  }
  void relu_backward(const float* output, float* gradient, std::size_t count) override {
    cuda::relu_backward(output, gradient, count, stream_.get());
    launched();
  }
  void softmax_cross_entropy(const trainer::SoftmaxTask& task) override {
    static_assert(sizeof(long long) == sizeof(std::int64_t));
    cuda::softmax_cross_entropy({task.logits, task.labels, task.gradient, &task.sums->loss,
                                 reinterpret_cast<long long*>(&task.sums->correct), task.rows,
                                 task.columns, 1.0 / static_cast<double>(task.global_batch)},
                                stream_.get());
    launched();
  }
  void sgd(const trainer::SgdTask& task) override {
    cuda::sgd(task.value, task.velocity, task.gradient, task.count, task.learning_rate,
              task.momentum, stream_.get());
    launched();
  }

 private:
  // Reports a kernel that cannot be launched; one that fails later is reported by finish().
  static void launched() { cuda::check("launching a kernel", cudaGetLastError()); }

  cuda::Stream stream_;
  Blas blas_{stream_.get()};
};

}  // namespace

std::unique_ptr<trainer::DeviceMath> open_cuda_math() { return std::make_unique<CudaMath>(); }

}  // namespace ronde::examples
