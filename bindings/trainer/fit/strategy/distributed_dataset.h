// SPDX-License-Identifier: Apache-2.0
// The batches of a strategy: at each step the part of each replica of this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/trainer/data/dataset.h"
#include "bindings/trainer/fit/strategy/per_replica.h"

namespace ronde::trainer {

class Strategy;

// What a function that makes a process's data set is told.
struct InputContext {
  std::size_t num_input_pipelines = 1;  // processes
  std::size_t input_pipeline_id = 0;
  std::size_t num_replicas_in_sync = 1;

  // Throws TrainerError where the global batch cannot be divided by the replicas.
  [[nodiscard]] std::size_t get_per_replica_batch_size(std::size_t global_batch) const;
};

// A step's batches, for Strategy::run(); they stay until the next one.
using DistributedBatch = PerReplica<std::reference_wrapper<const StepBatch>>;

// The steps of one epoch. Two ways to use it:
//   for (const DistributedBatch& batch : data.epoch(0)) ...
//   auto steps = data.epoch(0);  for (int i = 0; i < 10 && steps.next(); ++i) ... steps.batch() ...
//
// Thread safety: belongs to the strategy's thread. All processes take the same steps.
class DistributedEpoch {
 public:
  // Where parts come from: returns whether there is another step, and its parts.
  class Reader {
   public:
    Reader() = default;
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    virtual ~Reader() = default;
    virtual bool next(std::vector<std::reference_wrapper<const StepBatch>>& parts) = 0;
  };
  explicit DistributedEpoch(std::unique_ptr<Reader> reader) : reader_(std::move(reader)) {}

  // Goes to the next step; false at the end.
  bool next();
  [[nodiscard]] const DistributedBatch& batch() const noexcept { return batch_; }

  class Iterator {
   public:
    explicit Iterator(DistributedEpoch* epoch) : epoch_(epoch) {}
    const DistributedBatch& operator*() const { return epoch_->batch(); }
    Iterator& operator++() {
      if (!epoch_->next()) epoch_ = nullptr;
      return *this;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    DistributedEpoch* epoch_;  // null at the end
  };
  [[nodiscard]] Iterator begin() { return Iterator(next() ? this : nullptr); }
  [[nodiscard]] static Iterator end() { return Iterator(nullptr); }

 private:
  std::unique_ptr<Reader> reader_;
  DistributedBatch batch_;
};

// Thread safety: belongs to the strategy's thread.
class DistributedDataset {
 public:
  using Open = std::function<std::unique_ptr<DistributedEpoch::Reader>(std::uint64_t epoch,
                                                                       std::size_t first_step)>;
  explicit DistributedDataset(Open open) : open_(std::move(open)) {}

  // From step `first_step` of it on.
  [[nodiscard]] DistributedEpoch epoch(std::uint64_t epoch, std::size_t first_step = 0) const {
    return DistributedEpoch(open_(epoch, first_step));
  }

 private:
  Open open_;
};

}  // namespace ronde::trainer
