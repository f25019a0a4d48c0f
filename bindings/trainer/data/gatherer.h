// SPDX-License-Identifier: Apache-2.0
// Makes the batches of an epoch for one rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <vector>

#include "bindings/trainer/data/batch.h"
#include "bindings/trainer/data/order.h"
#include "bindings/trainer/data/source.h"

namespace ronde::trainer {

// What a data set's pipeline amounts to.
struct Pipeline {
  std::shared_ptr<const Source> source;
  std::vector<Stage> stages;
  std::size_t global_batch = 0;  // 0: not in batches yet
  std::size_t rank = 0;
  std::size_t ranks = 0;  // 0: not cut between ranks yet
  std::size_t parts = 1;
  bool alone = false;  // a step's samples are those of this rank
  bool own = false;    // other processes have other samples
  std::size_t prefetch = 0;
};

// Gives a batch room for so many samples, whose memory is used again.
void resize(Batch& batch, const Source& source, std::size_t samples);

// Thread safety: belongs to one thread at a time.
class Gatherer {
 public:
  Gatherer(Pipeline pipeline, std::uint64_t epoch, std::size_t first_step);
  // Its order draws from its pipeline.
  Gatherer(const Gatherer&) = delete;
  Gatherer& operator=(const Gatherer&) = delete;

  // Writes the next batch over `batch`, whose memory is used again. Returns false at the end of
  // the epoch, or when asked to stop. Throws what the source throws.
  bool gather(StepBatch& batch, const std::stop_token& stop);

 private:
  bool draw(const std::stop_token& stop);
  bool write(Batch& batch, std::size_t at, const Position& position) const;
  void copy(std::size_t from, Batch& batch, std::size_t at) const;

  Pipeline pipeline_;
  std::uint64_t epoch_;
  std::uint64_t first_pass_;  // of the epoch
  std::size_t first_step_;
  std::size_t step_ = 0;
  std::unique_ptr<Order> order_;     // made on the thread that gathers, since a shuffle takes time
  std::vector<Position> positions_;  // of the samples of a global batch
  Batch whole_;                      // a global batch, where the source's size is unknown
};

}  // namespace ronde::trainer
