// SPDX-License-Identifier: Apache-2.0
// Where the samples of a data set come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bindings/trainer/data/images.h"
#include "bindings/trainer/tensor/shape.h"

namespace ronde::trainer {

// What one sample is.
struct SampleFormat {
  Shape shape;              // of its input
  std::size_t classes = 0;  // it has a label below this; 0: it has none
  std::size_t targets = 0;  // so many numbers are to be predicted
};

// The memory that one sample is written to.
struct SampleRoom {
  std::span<float> input;
  std::int32_t* label = nullptr;  // null where there are no labels
  std::span<float> targets;
};

// Writes all of sample number `index` of an epoch, and returns whether there is one. What it leaves
// alone of one is refused.
using SampleGenerator =
    std::function<bool(std::uint64_t epoch, std::size_t index, const SampleRoom& room)>;

// Thread safety: any number of threads may write samples at a time, as far as a generator of the
// user's allows it.
class Source {
 public:
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  [[nodiscard]] const SampleFormat& format() const noexcept { return format_; }
  [[nodiscard]] std::size_t features() const noexcept { return features_; }
  // How many samples there are; empty: a generator will say when they end.
  [[nodiscard]] std::optional<std::size_t> size() const noexcept { return size_; }
  // Returns false where there is no such sample. Throws TrainerError, and what a generator throws.
  virtual bool write(std::uint64_t epoch, std::size_t index, const SampleRoom& room) const = 0;

 protected:
  // Throws TrainerError for a format that no batch can hold, and for more samples than 32 bits
  // can number.
  Source(SampleFormat format, std::optional<std::size_t> size);

 private:
  SampleFormat format_;
  std::size_t features_;
  std::optional<std::size_t> size_;
};

// The inputs of images have this shape: {channels, height, width} or {pixels}.
enum class ImageShape { kImage, kFlat };

[[nodiscard]] std::shared_ptr<const Source> image_source(std::shared_ptr<const Images> images,
                                                         ImageShape shape);
// Samples in memory, row-major. `owner` keeps it; null: it outlives the source.
struct Arrays {
  std::span<const float> inputs;
  std::span<const std::int32_t> labels{};
  std::span<const float> targets{};
  std::shared_ptr<const void> owner{};
};
// The same memory, now the source's own.
[[nodiscard]] Arrays owned_arrays(std::vector<float> inputs, std::vector<std::int32_t> labels,
                                  std::vector<float> targets);
// Throws TrainerError if the arrays do not hold the same number of samples, or a label is wrong.
[[nodiscard]] std::shared_ptr<const Source> array_source(SampleFormat format, Arrays arrays);
[[nodiscard]] std::shared_ptr<const Source> generator_source(SampleFormat format,
                                                             SampleGenerator generator,
                                                             std::optional<std::size_t> samples);

}  // namespace ronde::trainer
