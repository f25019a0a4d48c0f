// SPDX-License-Identifier: Apache-2.0
// The bits of oneDNN's computations depend on the numbers alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/trainer/tensor/kernels.h"
#include "test/unit/trainer/tensor/numbers.h"

namespace ronde::trainer {
namespace {

// Everything that a step of a network computes, as rows of numbers one after the other.
class Step {
 public:
  // Arguments lie `shift` floats behind the alignment of the pool's memory.
  Step(std::size_t samples, std::size_t shift) : samples_(samples), shift_(shift) {}

  std::vector<float> run(Kernels& kernels) {
    const Window window{{3, 3}, {1, 1}, {1, 1}};
    const Window half{{2, 2}, {2, 2}, {0, 0}};
    const Values images = given({samples_, 1, 12, 12});
    const Values weights = given({32, 1, 3, 3});
    const Values bias = given({32});
    const Values second = given({48, 32, 3, 3});
    const Values second_bias = given({48});
    const Values dense = given({48 * 36, 120});
    const Values deep = kernels.relu(kernels.convolve(images, weights, bias, window));
    const Pooled pooled = kernels.pool(deep, half, Pooling::kLargest, true);
    const Normalized normal = kernels.normalize(pooled.output, bias, bias, 1e-5F, {}, {});
    const Values deeper = kernels.convolve(normal.output, second, second_bias, window);
    Values rows = kernels.plain(deeper);
    rows.shape = {samples_, 48 * 36};
    Values result = given({samples_, 120});
    kernels.multiply(rows, false, dense, false, result, true);
    keep(result);
    Values by_dense = given(dense.shape);
    kernels.multiply(rows, true, result, false, by_dense);
    keep(by_dense);
    Values slope = given(rows.shape);
    kernels.multiply(result, false, dense, true, slope);
    slope.shape = deeper.shape;
    Values by_second = given(second.shape);
    Values by_second_bias = given(second_bias.shape);
    kernels.convolve_by_weights(normal.output, slope, by_second, by_second_bias, window);
    keep(by_second), keep(by_second_bias);
    slope = kernels.convolve_by_input(slope, second, normal.output.shape, window);
    Values by_scale = given({32});
    Values by_shift = given({32});
    slope =
        kernels.normalize_backward(pooled.output, slope, normal, bias, 1e-5F, by_scale, by_shift);
    keep(by_scale), keep(by_shift);
    slope = kernels.pool_backward(slope, pooled.places, deep.shape, half, Pooling::kLargest);
    slope = kernels.relu_backward(deep, slope);
    Values by_weights = given(weights.shape);
    Values by_bias = given(bias.shape);
    kernels.convolve_by_weights(images, slope, by_weights, by_bias, window);
    keep(by_weights), keep(by_bias);
    return std::move(kept_);
  }

 private:
  Values given(const Shape& shape) {
    const std::size_t count = elements_of(shape);
    std::shared_ptr<float> memory = pool_.take(count + shift_);
    std::ranges::copy(numbers(shape, ++seed_), memory.get() + shift_);
    Values values = Values::over(shape, {memory.get() + shift_, count});
    memory_.push_back(std::move(memory));
    return values;
  }
  void keep(const Values& values) {
    kept_.insert(kept_.end(), values.plain().begin(), values.plain().end());
  }

  std::size_t samples_;
  std::size_t shift_;
  MemoryPool pool_;
  std::uint64_t seed_ = 0;
  std::vector<std::shared_ptr<float>> memory_;
  std::vector<float> kept_;
};

TEST(KernelsBits, DependOnNeitherAddressesNorWhatWasComputedBefore) {
  MemoryPool used_pool;
  Kernels used(used_pool, 1);
  for (const std::size_t samples : {1U, 5U, 16U}) {
    MemoryPool pool;
    Kernels fresh(pool, 1);
    const std::vector<float> expected = Step(samples, 0).run(fresh);
    EXPECT_EQ(Step(samples, 0).run(fresh), expected) << samples;
    for (const std::size_t shift : {1U, 3U, 8U}) {
      EXPECT_EQ(Step(samples, shift).run(fresh), expected) << samples << " shifted by " << shift;
    }
    Step(samples + 2, 0).run(used);
    EXPECT_EQ(Step(samples, 1).run(used), expected) << samples;
  }
}

}  // namespace
}  // namespace ronde::trainer
