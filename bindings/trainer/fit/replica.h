// SPDX-License-Identifier: Apache-2.0
// One of the replicas that train together: a process, or a thread of one, with an engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ronde/ronde.hpp>
#include <span>
#include <string>
#include <vector>

#include "bindings/trainer/data/dataset.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

class Strategy;
struct Loss;
struct Metrics;

// What a step of one's own is given of a batch: this replica's part, on its tape, whose pass has
// begun and knows what losses are divided by.
struct Part {
  Tensor inputs;
  const std::vector<std::int32_t>& labels;
  const std::vector<float>& targets;
  const std::vector<std::uint32_t>& samples;  // the number of each sample in the data set
  std::size_t global_size;                    // samples of the step, all replicas together

  [[nodiscard]] std::size_t size() const noexcept { return samples.size(); }
};

// Since some fixed point, never backwards.
[[nodiscard]] double steady_seconds();

enum class Reduction : std::uint8_t { kSum, kMax };

// A replica, as the step that runs on it and the training loop see it: a rank of a Ronde job. The
// calls with a name are collective: every replica makes them in the same order, with the same name
// and count. They block, and throw ronde::Error where the job fails.
//
// Thread safety: belongs to the replica's thread.
class Replica {
 public:
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // Among all replicas in sync, and among those of this process.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] std::size_t local() const noexcept { return local_; }
  // The chief initialises, prints and saves; the others follow.
  [[nodiscard]] bool is_chief() const noexcept { return is_chief_; }
  [[nodiscard]] Strategy& strategy() const noexcept { return strategy_; }
  [[nodiscard]] Engine& engine() noexcept { return engine_; }
  [[nodiscard]] Tape& tape() noexcept { return tape_; }
  // Begins a pass over the first part of a batch: Strategy::run() does it for a step.
  [[nodiscard]] Part begin(const StepBatch& batch);
  // Goes back over the pass by the optimiser of the model that it has used, which steps once it has
  // accumulated what its options say. Returns the sums over this replica's samples.
  Metrics minimize(const Loss& loss);
  // This replica's part of a data set in batches: of each step's samples, cut into `parts`
  // micro-batches. Throws TrainerError for fewer samples than replicas.
  [[nodiscard]] Dataset shard(const Dataset& data, std::size_t parts = 1) const;
  // Likewise of one that is evaluated or predicted for: all of it, where variables are on servers.
  [[nodiscard]] Dataset shard_to_score(const Dataset& data) const;

  // In place, the same result on every replica.
  void allreduce(const std::string& name, std::span<double> numbers, Reduction how);
  void allreduce(const std::string& name, std::span<float> numbers, Reduction how);
  // The bytes of every replica, by rank; their counts may differ.
  [[nodiscard]] std::vector<char> allgather(const std::string& name, std::span<const char> mine);
  // Where replicas share the memory of variables it writes nothing that is there already.
  void broadcast(const std::string& name, std::span<float> numbers, int root);
  void barrier(const std::string& name);
  // How long this replica has stood still in the calls above since it was made, in seconds.
  [[nodiscard]] double waited_seconds() const noexcept { return waited_seconds_; }
  // How long tensors have been on their way since the job began, in seconds.
  [[nodiscard]] double transfer_seconds() const;

 private:
  friend class Strategy;
  Replica(Strategy& strategy, std::size_t local, Engine engine);
  template <typename Call>
  auto timed(const Call& call);

  Strategy& strategy_;
  std::size_t local_;
  Engine engine_;
  Tape tape_;
  int rank_;
  int size_;
  bool shares_memory_;
  bool is_chief_;
  double waited_seconds_ = 0.0;
};

}  // namespace ronde::trainer
