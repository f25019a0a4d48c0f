// SPDX-License-Identifier: Apache-2.0
// Each stage of a pipeline draws from the one before it, so that only a shuffle takes memory.
#include "bindings/trainer/data/order.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/data/sampler.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/random.h"

namespace ronde::trainer {

namespace {

class StoredOrder final : public Order {
 public:
  StoredOrder(std::optional<std::size_t> samples, std::uint64_t pass)
      : left_(samples), at_{pass, 0} {}

  bool next(Position& position) override {
    if (left_ && at_.index == *left_) return false;
    position = at_;
    ++at_.index;
    return true;
  }
  void end_pass() override { left_ = at_.index; }

 private:
  std::optional<std::size_t> left_;
  Position at_;
};

class Take final : public Order {
 public:
  Take(std::unique_ptr<Order> from, std::size_t most) : from_(std::move(from)), left_(most) {}

  bool next(Position& position) override {
    if (left_ == 0 || !from_->next(position)) return false;
    --left_;
    return true;
  }
  void end_pass() override {
    ++left_;
    from_->end_pass();
  }

 private:
  std::unique_ptr<Order> from_;
  std::size_t left_;
};

class Shuffle final : public Order {
 public:
  Shuffle(std::unique_ptr<Order> from, std::uint64_t seed, std::uint64_t epoch) {
    for (Position position; from->next(position);) positions_.push_back(position);
    shuffle(std::span(positions_), seed, epoch);
  }

  bool next(Position& position) override {
    if (next_ == positions_.size()) return false;
    position = positions_[next_++];
    return true;
  }
  void end_pass() override { next_ = positions_.size(); }

 private:
  std::vector<Position> positions_;
  std::size_t next_ = 0;
};

class Repeat final : public Order {
 public:
  Repeat(std::optional<std::size_t> samples, std::span<const Stage> stages, std::uint64_t times,
         std::uint64_t epoch)
      : samples_(samples), stages_(stages), pass_(epoch * times), end_(pass_ + times) {
    from_ = order_of(samples_, stages_, pass_);
  }

  bool next(Position& position) override {
    while (!from_->next(position)) {
      // After a pass that had no samples no other one has any.
      if (std::exchange(given_, 0) == 0 || pass_ + 1 == end_) return false;
      from_ = order_of(samples_, stages_, ++pass_);
    }
    ++given_;
    return true;
  }
  void end_pass() override {
    --given_;
    from_->end_pass();
  }

 private:
  std::optional<std::size_t> samples_;
  std::span<const Stage> stages_;
  std::uint64_t pass_;
  std::uint64_t end_;
  std::uint64_t given_ = 0;  // in this pass
  std::unique_ptr<Order> from_;
};

}  // namespace

std::unique_ptr<Order> order_of(std::optional<std::size_t> samples, std::span<const Stage> stages,
                                std::uint64_t epoch) {
  if (stages.empty()) return std::make_unique<StoredOrder>(samples, epoch);
  const Stage& last = stages.back();
  const std::span<const Stage> before = stages.first(stages.size() - 1);
  if (last.kind == Stage::Kind::kRepeat) {
    return std::make_unique<Repeat>(samples, before, last.value, epoch);
  }
  std::unique_ptr<Order> from = order_of(samples, before, epoch);
  if (last.kind == Stage::Kind::kTake) return std::make_unique<Take>(std::move(from), last.value);
  return std::make_unique<Shuffle>(std::move(from), last.value, epoch);
}

std::uint32_t passes_of(std::span<const Stage> stages) {
  std::uint32_t passes = 1;
  for (const Stage& stage : stages) {
    if (stage.kind != Stage::Kind::kRepeat) continue;
    if (!__builtin_mul_overflow(passes, stage.value, &passes)) continue;
    throw TrainerError("repeat(" + std::to_string(stage.value) +
                       ") makes more passes than 32 bits can count: repeat less often, in several "
                       "epochs");
  }
  return passes;
}

std::optional<std::size_t> count_of(std::optional<std::size_t> samples,
                                    std::span<const Stage> stages) {
  if (!samples) return samples;
  std::size_t count = *samples;
  for (const Stage& stage : stages) {
    if (stage.kind == Stage::Kind::kTake) count = std::min(count, stage.value);
    if (stage.kind == Stage::Kind::kRepeat && __builtin_mul_overflow(count, stage.value, &count)) {
      throw TrainerError("repeat(" + std::to_string(stage.value) +
                         ") makes more samples than can be counted: repeat less often");
    }
  }
  return count;
}

}  // namespace ronde::trainer
