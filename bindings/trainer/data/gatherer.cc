// SPDX-License-Identifier: Apache-2.0
// Drawing a global batch and writing this rank's parts of it.
#include "bindings/trainer/data/gatherer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "bindings/trainer/data/sampler.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

Gatherer::Gatherer(Pipeline pipeline, std::uint64_t epoch, std::size_t first_step)
    : pipeline_(std::move(pipeline)),
      epoch_(epoch),
      first_pass_(epoch * passes_of(pipeline_.stages)),
      first_step_(first_step) {}

bool Gatherer::gather(StepBatch& batch, const std::stop_token& stop) {
  const Source& source = *pipeline_.source;
  if (order_ == nullptr) order_ = order_of(source.size(), pipeline_.stages, epoch_);
  for (; step_ < first_step_; ++step_) {
    if (!draw(stop)) return false;
  }
  if (!draw(stop)) return false;
  batch.parts.resize(pipeline_.parts);
  batch.global_size = pipeline_.alone ? 0 : positions_.size();
  batch.step = step_++;
  batch.epoch = epoch_;
  for (std::size_t j = 0; j < pipeline_.parts; ++j) {
    const Range range = part_of({0, positions_.size()}, pipeline_.rank * pipeline_.parts + j,
                                std::max<std::size_t>(pipeline_.ranks, 1) * pipeline_.parts);
    Batch& part = batch.parts[j];
    resize(part, source, range.size());
    if (pipeline_.alone) batch.global_size += range.size();
    for (std::size_t i = 0; i < range.size(); ++i) {
      if (stop.stop_requested()) return false;
      if (source.size()) {
        write(part, i, positions_[range.first + i]);
      } else {
        copy(range.first + i, part, i);
      }
    }
  }
  batch.global_size = std::max<std::size_t>(1, batch.global_size);  // a loss is divided by it
  return true;
}

// Finds out which samples the next global batch has. Where only writing a sample tells whether
// there is one, all of them are written.
bool Gatherer::draw(const std::stop_token& stop) {
  const bool unknown = !pipeline_.source->size();
  positions_.clear();
  Position position;
  while (positions_.size() < pipeline_.global_batch && order_->next(position)) {
    if (stop.stop_requested()) return false;
    if (unknown) {
      if (whole_.size() <= positions_.size())
        resize(whole_, *pipeline_.source, positions_.size() + 1);
      if (!write(whole_, positions_.size(), position)) {
        order_->end_pass();
        continue;
      }
    }
    positions_.push_back(position);
  }
  return !positions_.empty();
}

void resize(Batch& batch, const Source& source, std::size_t samples) {
  const SampleFormat& format = source.format();
  batch.shape.resize(format.shape.size() + 1);
  batch.shape[0] = samples;
  std::ranges::copy(format.shape, batch.shape.begin() + 1);
  batch.inputs.resize(samples * source.features());
  batch.labels.resize(format.classes == 0 ? 0 : samples);
  batch.targets.resize(samples * format.targets);
  batch.samples.resize(samples);
  batch.repetitions.resize(samples);
}

bool Gatherer::write(Batch& batch, std::size_t at, const Position& position) const {
  if (position.index > std::numeric_limits<std::uint32_t>::max()) {
    throw TrainerError(
        "a pass of the generator has more samples than 32 bits can number: use "
        "take() or several epochs");
  }
  const std::size_t features = pipeline_.source->features();
  const std::size_t targets = pipeline_.source->format().targets;
  batch.samples[at] = static_cast<std::uint32_t>(position.index);
  batch.repetitions[at] = static_cast<std::uint32_t>(position.pass - first_pass_);
  return pipeline_.source->write(
      position.pass, position.index,
      {.input = std::span(batch.inputs).subspan(at * features, features),
       .label = batch.labels.empty() ? nullptr : &batch.labels[at],
       .targets = std::span(batch.targets).subspan(at * targets, targets)});
}

// Takes one sample of the whole batch.
void Gatherer::copy(std::size_t from, Batch& batch, std::size_t at) const {
  const auto take = [from, at](const auto& all, auto& some, std::size_t count) {
    std::copy_n(all.data() + from * count, count, some.data() + at * count);
  };
  const SampleFormat& format = pipeline_.source->format();
  take(whole_.inputs, batch.inputs, pipeline_.source->features());
  take(whole_.labels, batch.labels, format.classes == 0 ? 0 : 1);
  take(whole_.targets, batch.targets, format.targets);
  take(whole_.samples, batch.samples, 1);
  take(whole_.repetitions, batch.repetitions, 1);
}

}  // namespace ronde::trainer
