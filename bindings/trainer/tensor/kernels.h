// SPDX-License-Identifier: Apache-2.0
// The computations that oneDNN does, on numbers without a tape. No header of oneDNN is needed to
// use them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "bindings/trainer/tensor/values.h"

namespace ronde::trainer {

class Primitives;

// The shape that a window leaves of {samples, channels, height, width}. Throws TrainerError where
// the window does not fit into the padded image.
[[nodiscard]] Shape windowed(const Shape& input, const Window& window, std::size_t channels);

struct Normalized {
  Values output;
  Values mean;      // of the batch, by channel
  Values variance;  // of the batch, by channel: the mean square distance (not corrected)
};

// What a pool takes of a window: the largest element, or the mean of all, where what is padded
// counts as zeros. A NaN gives NaN.
enum class Pooling : std::uint8_t { kLargest, kMean };

struct Pooled {
  Values output;
  Values places;  // what pool_backward() has to know: the places of the largest elements
};

// Primitives are made once for each shape and layout, and kept while passes use them. Arguments may
// be in any layout but where a comment says row-major; shapes must fit (operations check them).
// Parameters are always row-major. A batch of no samples is computed too: results without elements,
// gradients of zeros.
//
// Thread safety: belongs to one thread.
class Kernels {
 public:
  // Computes with `threads` threads, at least 1, whichever thread calls; the caller's own setting
  // of OpenMP stays as it is. The pool must outlive this object. Throws TrainerError.
  Kernels(MemoryPool& pool, int threads);
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;
  ~Kernels();

  // A pass begins: lets go of primitives, beyond some hundreds, that the last two did not use.
  void begin_pass();
  // How many primitives are kept.
  [[nodiscard]] std::size_t held() const;

  // The same numbers in row-major order.
  [[nodiscard]] Values plain(const Values& values);
  // a + b, of the same shape.
  [[nodiscard]] Values add(const Values& a, const Values& b);

  // Matrices, row-major: c = a * b with either transposed as it lies in memory; where `add` is set,
  // the product is added to what `c` holds.
  void multiply(const Values& a, bool transpose_a, const Values& b, bool transpose_b, Values& c,
                bool add = false);

  // Convolution: input {samples, channels, height, width}, weights {outputs, channels, height,
  // width} and bias {outputs} row-major. An empty `bias` is none, and an empty `by_bias` unwanted.
  [[nodiscard]] Values convolve(const Values& input, const Values& weights, const Values& bias,
                                const Window& window);
  [[nodiscard]] Values convolve_by_input(const Values& gradient, const Values& weights,
                                         const Shape& input, const Window& window);
  void convolve_by_weights(const Values& input, const Values& gradient, Values& by_weights,
                           Values& by_bias, const Window& window);

  // Without `places` where no gradient is wanted.
  [[nodiscard]] Pooled pool(const Values& input, const Window& window, Pooling pooling,
                            bool training);
  [[nodiscard]] Values pool_backward(const Values& gradient, const Values& places,
                                     const Shape& input, const Window& window, Pooling pooling);

  [[nodiscard]] Values relu(const Values& input);
  [[nodiscard]] Values relu_backward(const Values& output, const Values& gradient);

  // Batch normalisation of {samples, channels, height, width} or {samples, channels}; scale and
  // shift {channels}. With statistics given (both or none empty) these are used as they are.
  [[nodiscard]] Normalized normalize(const Values& input, const Values& scale, const Values& shift,
                                     float epsilon, const Values& mean, const Values& variance);
  // Through the batch's own statistics. Writes the gradients by scale and shift, row-major.
  [[nodiscard]] Values normalize_backward(const Values& input, const Values& gradient,
                                          const Normalized& forward, const Values& scale,
                                          float epsilon, Values& by_scale, Values& by_shift);

 private:
  std::unique_ptr<Primitives> primitives_;
};

}  // namespace ronde::trainer
