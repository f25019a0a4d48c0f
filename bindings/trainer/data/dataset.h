// SPDX-License-Identifier: Apache-2.0
// A data set: samples from somewhere, and how they become the batches of a rank.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/data/batch.h"
#include "bindings/trainer/data/gatherer.h"
#include "bindings/trainer/data/images.h"
#include "bindings/trainer/data/source.h"

namespace ronde::trainer {

class Prefetcher;

// The batches of one epoch, for one rank. While it prefetches, a thread of its own reads the source
// and calls the generator; it ends with this object, after the sample that it is writing.
//
// Thread safety: belongs to one thread at a time.
class Epoch {
 public:
  Epoch(const Pipeline& pipeline, std::uint64_t epoch, std::size_t first_step);
  Epoch(Epoch&& other) noexcept;
  Epoch& operator=(Epoch&& other) noexcept;
  ~Epoch();

  // The next batch, which stays as it is until the next call; null at the end. Throws what a
  // generator throws, and DataError for what it should not have made; after that only this again.
  const StepBatch* next();

 private:
  std::unique_ptr<Prefetcher> batches_;
};

// Which part of every batch a data set is.
struct Share {
  std::size_t rank = 0;
  std::size_t ranks = 1;

  friend bool operator==(const Share&, const Share&) = default;
};

// A value: each function gives a new data set, and leaves this one as it is. Copies share the
// samples. For instance:
//
//   const Dataset data = Dataset::from_images(images, ImageShape::kFlat).shuffle(seed);
//   Epoch epoch = data.batch(128).shard(rank, ranks).prefetch(2).epoch(e);
//   while (const StepBatch* batch = epoch.next()) ...
//
// An epoch is every sample once (after take() and repeat()), in batches of which the last may be
// shorter. Its order depends on the seed and the epoch alone: a batch has the same samples for
// every number of ranks. Wrong calls throw TrainerError with what to do.
//
// Thread safety: immutable, so any number of threads may use one. A generator is called by the
// thread of each epoch, so two epochs at a time call it at a time.
class Dataset {
 public:
  // An lvalue must outlive all data sets and epochs of it; an rvalue is kept.
  static Dataset from_images(const Images& images, ImageShape shape);
  static Dataset from_images(Images&& images, ImageShape shape);
  // A pair of IDX files, read now: throws DataError. Pixels become 0..1.
  static Dataset from_files(const std::string& images_file, const std::string& labels_file,
                            std::size_t classes, ImageShape shape);
  // Inputs of `sample` elements each, row-major, with a label each, of any integer type, below
  // `classes`. Throws DataError if the counts differ or a label is too large.
  template <std::integral Label>
  static Dataset from_arrays(Shape sample, std::vector<float> inputs,
                             const std::vector<Label>& labels, std::size_t classes) {
    std::vector<std::int32_t> narrowed;
    narrowed.reserve(labels.size());
    // One that has no room is refused as what it becomes: below 0.
    for (const Label label : labels) {
      const auto room = static_cast<std::int32_t>(label);
      narrowed.push_back(static_cast<Label>(room) == label ? room : -1);
    }
    return from_labels(std::move(sample), std::move(inputs), std::move(narrowed), classes);
  }
  // The same with `each` numbers to predict for each sample.
  static Dataset from_arrays(Shape sample, std::vector<float> inputs, std::vector<float> targets,
                             std::size_t each = 1);
  // The same without a copy: the memory must outlive all data sets and epochs of it.
  static Dataset from_memory(Shape sample, std::span<const float> inputs,
                             std::span<const std::int32_t> labels, std::size_t classes);
  static Dataset from_memory(Shape sample, std::span<const float> inputs,
                             std::span<const float> targets, std::size_t each = 1);
  // Two files of np.save(), read now, whose first side counts the samples: inputs, and a label of
  // each, or with classes = 0 as many numbers to predict. Throws DataError.
  static Dataset from_npy(const std::string& inputs_file, const std::string& answers_file,
                          std::size_t classes = 0);
  // Samples that a function makes; it writes all of each. With a number of samples each rank asks
  // for its own alone, in any order. Without, every rank asks for all of them, in order from 0,
  // until the function returns false: on all ranks at the same one.
  static Dataset from_generator(SampleFormat format, SampleGenerator generator,
                                std::optional<std::size_t> samples = {});

  // Puts the samples into an order of their own in every epoch (and every repetition of it).
  [[nodiscard]] Dataset shuffle(std::uint64_t seed) const;
  // The samples so many times, one time after the other; at least once. A pass without samples is
  // the last.
  [[nodiscard]] Dataset repeat(std::size_t times) const;
  // The first ones. After shuffle() these are others in every epoch.
  [[nodiscard]] Dataset take(std::size_t samples) const;
  // Batches of so many samples, all ranks and micro-batches of a step together.
  [[nodiscard]] Dataset batch(std::size_t global) const;
  // Cuts every batch into ranks x parts, of sizes that differ by at most 1; this rank has parts
  // rank * parts to rank * parts + parts - 1. Some may be empty in the last batch.
  [[nodiscard]] Dataset shard(std::size_t rank, std::size_t ranks, std::size_t parts = 1) const;
  // The same, for a step of this rank alone: StepBatch::global_size is its own samples.
  [[nodiscard]] Dataset alone() const;
  // These samples are this process's own: others have others, more or fewer, and so other numbers
  // of batches, each of its own samples alone. fit() takes every process's batches: a step counts
  // each sample once, and a process without any left waits until the others have none.
  [[nodiscard]] Dataset own() const;
  [[nodiscard]] bool is_own() const noexcept { return pipeline_.own; }
  // Gathers up to so many batches ahead, on a thread; 0: none.
  [[nodiscard]] Dataset prefetch(std::size_t batches) const;

  // The batches of an epoch, from `first_step` on: exactly the rest of it. It needs batch(), and
  // without shard() it is that of the only rank, which fit(), evaluate() and predict()
  // refuse on several.
  [[nodiscard]] Epoch epoch(std::uint64_t epoch, std::size_t first_step = 0) const;

  // What a sample is, without the side of the samples.
  [[nodiscard]] const SampleFormat& format() const noexcept;
  // The samples and the steps of an epoch; empty where only the generator knows. steps() needs
  // batch().
  [[nodiscard]] std::optional<std::size_t> samples() const;
  [[nodiscard]] std::optional<std::size_t> steps() const;
  // The samples of a step, all ranks together; 0 before batch().
  [[nodiscard]] std::size_t global_batch() const noexcept { return pipeline_.global_batch; }
  // What shard() has said.
  [[nodiscard]] Share share() const noexcept;
  // A batch of this rank without any samples.
  [[nodiscard]] StepBatch no_samples() const;
  // How many samples come in which order and batches, in words: what a training must have in common
  // with an earlier one whose place in an epoch it takes up.
  [[nodiscard]] std::string settings() const;

 private:
  explicit Dataset(std::shared_ptr<const Source> source);
  static Dataset from_labels(Shape sample, std::vector<float> inputs,
                             std::vector<std::int32_t> labels, std::size_t classes);
  [[nodiscard]] Dataset with(const char* call, Stage stage) const;
  void require_batches(const char* call) const;

  Pipeline pipeline_;
};

}  // namespace ronde::trainer
