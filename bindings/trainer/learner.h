// SPDX-License-Identifier: Apache-2.0
// Whatever learns: a model, the sums of its gradients over the ranks and its optimiser, wherever
// their numbers live. The training loop (fit.h) knows no more of them than this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "bindings/trainer/dataset.h"

namespace ronde::trainer {

// Thread safety: belongs to one thread. What is said of every rank is collective.
class Learner {
 public:
  Learner() = default;
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;
  virtual ~Learner() = default;

  // Every rank gets the state of `root`.
  virtual void broadcast_state(int root) = 0;
  // Forward, backward, the sums over the ranks, and the update, on every rank; this one has these
  // samples (perhaps none) of a batch of `global_size`. It need not be over when this returns.
  virtual void step(const Dataset& data, std::span<const std::uint32_t> samples,
                    std::size_t global_size) = 0;
  // The sum of this rank's losses since it was taken last, once all steps are over.
  [[nodiscard]] virtual double take_loss() = 0;
  // How many of these samples are classified correctly.
  [[nodiscard]] virtual std::int64_t count_correct(const Dataset& data,
                                                   std::span<const std::uint32_t> samples) = 0;
  // 16 hexadecimal digits over the bytes of all parameters, in order.
  [[nodiscard]] virtual std::string parameter_hash() = 0;
  // How long this rank has waited for sums since it was made.
  [[nodiscard]] virtual double waited_seconds() const = 0;
};

}  // namespace ronde::trainer
