// SPDX-License-Identifier: Apache-2.0
// Putting a pipeline together; what its epochs do is in gatherer.cc and prefetcher.cc.
#include "bindings/trainer/data/dataset.h"

#include <algorithm>
#include <utility>

#include "bindings/trainer/data/npy.h"
#include "bindings/trainer/data/prefetcher.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

Epoch::Epoch(const Pipeline& pipeline, std::uint64_t epoch, std::size_t first_step)
    : batches_(std::make_unique<Prefetcher>(pipeline, epoch, first_step)) {}
Epoch::Epoch(Epoch&& other) noexcept = default;
Epoch& Epoch::operator=(Epoch&& other) noexcept = default;
Epoch::~Epoch() = default;

const StepBatch* Epoch::next() { return batches_->next(); }

Dataset::Dataset(std::shared_ptr<const Source> source) { pipeline_.source = std::move(source); }

Dataset Dataset::from_images(const Images& images, ImageShape shape) {
  // A pointer that owns nothing.
  return Dataset(image_source({std::shared_ptr<const Images>(), &images}, shape));
}

Dataset Dataset::from_images(Images&& images, ImageShape shape) {
  return Dataset(image_source(std::make_shared<const Images>(std::move(images)), shape));
}

Dataset Dataset::from_files(const std::string& images_file, const std::string& labels_file,
                            std::size_t classes, ImageShape shape) {
  return from_images(read_images(images_file, labels_file, classes), shape);
}

namespace {

SampleFormat labelled(Shape sample, std::size_t classes) {
  return {.shape = std::move(sample), .classes = classes, .targets = 0};
}

SampleFormat with_targets(Shape sample, std::size_t each) {
  if (each == 0) throw TrainerError("a sample with 0 targets: give at least 1 for each");
  return {.shape = std::move(sample), .classes = 0, .targets = each};
}

// What one sample is in an array of several.
Shape sample_of(const std::string& file, const Shape& shape) {
  if (shape.empty()) {
    throw DataError(file + ": has one number and no samples: save an array of {samples, ...}");
  }
  return shape.size() == 1 ? Shape{1} : Shape(shape.begin() + 1, shape.end());
}

}  // namespace

Dataset Dataset::from_labels(Shape sample, std::vector<float> inputs,
                             std::vector<std::int32_t> labels, std::size_t classes) {
  return Dataset(array_source(labelled(std::move(sample), classes),
                              owned_arrays(std::move(inputs), std::move(labels), {})));
}

Dataset Dataset::from_arrays(Shape sample, std::vector<float> inputs, std::vector<float> targets,
                             std::size_t each) {
  return Dataset(array_source(with_targets(std::move(sample), each),
                              owned_arrays(std::move(inputs), {}, std::move(targets))));
}

Dataset Dataset::from_memory(Shape sample, std::span<const float> inputs,
                             std::span<const std::int32_t> labels, std::size_t classes) {
  return Dataset(
      array_source(labelled(std::move(sample), classes), {.inputs = inputs, .labels = labels}));
}

Dataset Dataset::from_memory(Shape sample, std::span<const float> inputs,
                             std::span<const float> targets, std::size_t each) {
  return Dataset(
      array_source(with_targets(std::move(sample), each), {.inputs = inputs, .targets = targets}));
}

Dataset Dataset::from_npy(const std::string& inputs_file, const std::string& answers_file,
                          std::size_t classes) {
  NpyArray<float> inputs = read_npy(inputs_file);
  Shape sample = sample_of(inputs_file, inputs.shape);
  if (classes != 0) {
    const auto labels = read_npy_integers(answers_file);
    if (labels.values.size() != inputs.shape.front()) {
      throw DataError(answers_file + ": has " + std::to_string(labels.values.size()) +
                      " labels, and " + inputs_file + " has " +
                      std::to_string(inputs.shape.front()) + " samples: save a label for each");
    }
    return from_arrays(std::move(sample), std::move(inputs.values), labels.values, classes);
  }
  NpyArray<float> targets = read_npy(answers_file);
  const std::size_t each = elements_of(sample_of(answers_file, targets.shape));
  return from_arrays(std::move(sample), std::move(inputs.values), std::move(targets.values), each);
}

Dataset Dataset::from_generator(SampleFormat format, SampleGenerator generator,
                                std::optional<std::size_t> samples) {
  return Dataset(generator_source(std::move(format), std::move(generator), samples));
}

Dataset Dataset::with(const char* call, Stage stage) const {
  if (pipeline_.global_batch != 0) {
    throw TrainerError(std::string(call) +
                       "() is about samples, which batch() has put together already: call it "
                       "before batch()");
  }
  Dataset changed = *this;
  changed.pipeline_.stages.push_back(stage);
  (void)changed.samples();                    // throws where there are too many
  (void)passes_of(changed.pipeline_.stages);  // likewise
  return changed;
}

Dataset Dataset::shuffle(std::uint64_t seed) const {
  if (!pipeline_.source->size()) {
    throw TrainerError(
        "samples of a generator that has not said how many there are cannot be shuffled: give "
        "from_generator() their number, or leave shuffle() out");
  }
  return with("shuffle", {Stage::Kind::kShuffle, seed});
}

Dataset Dataset::repeat(std::size_t times) const {
  if (times == 0) throw TrainerError("repeat(0) leaves no samples: repeat at least once");
  return with("repeat", {Stage::Kind::kRepeat, times});
}

Dataset Dataset::take(std::size_t samples) const {
  return with("take", {Stage::Kind::kTake, samples});
}

Dataset Dataset::batch(std::size_t global) const {
  if (global == 0) throw TrainerError("a batch of 0 samples: use at least 1");
  if (pipeline_.global_batch != 0) {
    throw TrainerError("batch() is called twice, with " + std::to_string(pipeline_.global_batch) +
                       " and " + std::to_string(global) + ": call it once");
  }
  Dataset changed = *this;
  changed.pipeline_.global_batch = global;
  return changed;
}

void Dataset::require_batches(const char* call) const {
  if (pipeline_.global_batch != 0) return;
  throw TrainerError(std::string(call) + "() is about batches: call batch() before it");
}

Dataset Dataset::shard(std::size_t rank, std::size_t ranks, std::size_t parts) const {
  require_batches("shard");
  if (pipeline_.ranks != 0) {
    throw TrainerError("shard() is called twice: a batch is cut between the ranks once");
  }
  if (rank >= ranks || parts == 0) {
    throw TrainerError("there is no rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                       " with " + std::to_string(parts) +
                       " parts: use ranks from 0, and at least 1 part");
  }
  std::size_t all = 0;
  if (__builtin_mul_overflow(ranks, parts, &all) || all > pipeline_.global_batch) {
    throw TrainerError("a global batch of " + std::to_string(pipeline_.global_batch) +
                       " is too small for " + std::to_string(ranks) + " ranks with " +
                       std::to_string(parts) + " micro-batches each: use at least " +
                       std::to_string(ranks) + " x " + std::to_string(parts));
  }
  Dataset changed = *this;
  changed.pipeline_.rank = rank;
  changed.pipeline_.ranks = ranks;
  changed.pipeline_.parts = parts;
  return changed;
}

Dataset Dataset::alone() const {
  Dataset changed = *this;
  changed.pipeline_.alone = true;
  return changed;
}

Dataset Dataset::own() const {
  Dataset changed = *this;
  changed.pipeline_.own = true;
  return changed;
}

Dataset Dataset::prefetch(std::size_t batches) const {
  constexpr std::size_t kMost = 1000;
  require_batches("prefetch");
  if (batches > kMost) {
    throw TrainerError("prefetch(" + std::to_string(batches) + ") takes memory for as many " +
                       "batches: use at most " + std::to_string(kMost));
  }
  Dataset changed = *this;
  changed.pipeline_.prefetch = batches;
  return changed;
}

Epoch Dataset::epoch(std::uint64_t epoch, std::size_t first_step) const {
  require_batches("epoch");
  return {pipeline_, epoch, first_step};
}

const SampleFormat& Dataset::format() const noexcept { return pipeline_.source->format(); }

std::optional<std::size_t> Dataset::samples() const {
  return count_of(pipeline_.source->size(), pipeline_.stages);
}

std::optional<std::size_t> Dataset::steps() const {
  require_batches("steps");
  const std::optional<std::size_t> samples = this->samples();
  if (!samples) return samples;
  const std::size_t whole = *samples / pipeline_.global_batch;
  return whole + (*samples % pipeline_.global_batch == 0 ? 0 : 1);
}

Share Dataset::share() const noexcept {
  return {pipeline_.rank, std::max<std::size_t>(pipeline_.ranks, 1)};
}

StepBatch Dataset::no_samples() const {
  StepBatch batch;
  batch.global_size = 1;  // a loss is divided by it
  batch.parts.resize(pipeline_.parts);
  for (Batch& part : batch.parts) resize(part, *pipeline_.source, 0);
  return batch;
}

std::string Dataset::settings() const {
  const auto size = pipeline_.source->size();
  if (pipeline_.own) return "samples of each process's own";
  std::string text = (size ? std::to_string(*size) : "unknown") + " samples";
  for (const Stage& stage : pipeline_.stages) {
    text += stage.kind == Stage::Kind::kShuffle ? ", shuffle "
            : stage.kind == Stage::Kind::kTake  ? ", take "
                                                : ", repeat ";
    text += std::to_string(stage.value);
  }
  return text + ", batches of " + std::to_string(pipeline_.global_batch);
}

}  // namespace ronde::trainer
