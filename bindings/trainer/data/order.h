// SPDX-License-Identifier: Apache-2.0
// The order of the samples of an epoch. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace ronde::trainer {

// One step of a pipeline, applied to the samples that come out of the steps before it.
struct Stage {
  enum class Kind { kShuffle, kTake, kRepeat };
  Kind kind;
  std::uint64_t value;  // the seed, or how many
};

// A sample: its number in the source, in a pass over it. Every repetition is a pass, so that it
// has an order, generated samples and a dropout of its own. Epoch e begins with pass e times the
// passes_of() its stages.
struct Position {
  std::uint64_t pass = 0;
  std::size_t index = 0;
};

// Gives the samples of an epoch, one after the other.
//
// Thread safety: belongs to one thread at a time.
class Order {
 public:
  Order() = default;
  Order(const Order&) = delete;
  Order& operator=(const Order&) = delete;
  virtual ~Order() = default;

  // Returns false at the end.
  virtual bool next(Position& position) = 0;
  // Says that the source, whose size nobody knew, has not got the last position.
  virtual void end_pass() = 0;
};

// `samples` is empty for a source of unknown size, which cannot be shuffled.
[[nodiscard]] std::unique_ptr<Order> order_of(std::optional<std::size_t> samples,
                                              std::span<const Stage> stages, std::uint64_t epoch);

// How many passes over the source an epoch makes. Throws TrainerError if 32 bits cannot count them.
[[nodiscard]] std::uint32_t passes_of(std::span<const Stage> stages);

// How many samples come out of the stages; empty if this is unknown. Throws TrainerError if the
// number overflows.
[[nodiscard]] std::optional<std::size_t> count_of(std::optional<std::size_t> samples,
                                                  std::span<const Stage> stages);

}  // namespace ronde::trainer
