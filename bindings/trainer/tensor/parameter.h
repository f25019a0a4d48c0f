// SPDX-License-Identifier: Apache-2.0
// What is learned: a named tensor with a gradient.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "bindings/trainer/tensor/values.h"

namespace ronde::trainer {

// A parameter lies in row-major order on every machine, so that it can be averaged, hashed and
// saved as it is; oneDNN reads dense weights as fast in this order as in its own. Its name, such
// as "fc1/weight", is the same on every rank.
//
// Thread safety: belongs to the thread of its model.
class Parameter {
 public:
  // Zeros, with a gradient in memory of its own.
  Parameter(std::string name, Shape shape)
      : name_(std::move(name)),
        value_(Values::make(pool_, shape)),
        gradient_(Values::make(pool_, std::move(shape))) {
    std::ranges::fill(value(), 0.0F);
    std::ranges::fill(gradient(), 0.0F);
  }
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const Shape& shape() const noexcept { return value_.shape; }
  [[nodiscard]] std::size_t size() const { return value_.size(); }
  [[nodiscard]] std::span<float> value() const { return value_.plain(); }
  [[nodiscard]] std::span<float> gradient() const { return gradient_.plain(); }

  // How often the value has changed. Whoever writes value() says so with changed(), so that a
  // backward pass can refuse a value that is not the one its forward pass has used.
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
  void changed() noexcept { ++version_; }

  // From now on the gradient lies in `memory`, of as many elements (a ronde::Buffer, say), which
  // must stay until take_gradient_back().
  void place_gradient(std::span<float> memory) {
    Values elsewhere = Values::over(shape(), memory);
    std::ranges::copy(gradient(), memory.begin());
    std::swap(gradient_, elsewhere);
    if (own_gradient_.empty()) own_gradient_ = std::move(elsewhere);
  }
  // From now on it lies in the parameter's own memory again, as zeros.
  void take_gradient_back() noexcept {
    if (own_gradient_.empty()) return;
    gradient_ = std::exchange(own_gradient_, {});
    has_gradient_ = false;
    begin_step();
  }

  // From now on the value is that of `other`, of the same shape, in the same memory.
  void share_value_of(const Parameter& other) { value_ = other.value_; }

  // From now on the value, or the gradient, lies in other memory; who shares that of before keeps
  // it as it is. Not for a gradient that was placed.
  void move_value() { move(value_); }
  void move_gradient() { move(gradient_); }

  // Forgets the gradient: the next backward pass writes it, those after it add to it. At the end of
  // a backward pass of a tape that has written it before, its memory is zeros where no pass of the
  // step has used the parameter, so that it can be summed over ranks as it is. Steps without any
  // backward pass sum what is left of the step before.
  // NOLINTNEXTLINE(bugprone-exception-escape): a gradient is in row-major order, so plain() is, too
  void begin_step() noexcept {
    // What no pass has used may hold the sum of other ranks' gradients.
    if (!has_gradient_) std::ranges::fill(gradient(), 0.0F);
    has_gradient_ = false;
    ++step_;
  }
  // Whether a backward pass since begin_step() has used this parameter.
  [[nodiscard]] bool has_gradient() const noexcept { return has_gradient_; }

  // For the tape: both in row-major order.
  [[nodiscard]] const Values& value_values() const noexcept { return value_; }
  [[nodiscard]] const Values& gradient_values() const noexcept { return gradient_; }
  void set_has_gradient() noexcept { has_gradient_ = true; }
  // How many steps have begun.
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  // Says whether the parameter is still there.
  [[nodiscard]] std::weak_ptr<Parameter> handle() const noexcept { return self_; }

 private:
  void move(Values& values) {
    pool_.begin_pass();  // what no move of late has used goes back to the system
    Values elsewhere = Values::make(pool_, shape());
    std::ranges::copy(values.plain(), elsewhere.plain().begin());
    values = std::move(elsewhere);
  }

  MemoryPool pool_;
  std::string name_;
  Values value_;
  Values gradient_;
  Values own_gradient_;  // while gradient_ lies elsewhere
  bool has_gradient_ = false;
  std::uint64_t step_ = 0;
  std::uint64_t version_ = 0;
  std::shared_ptr<Parameter> self_{this, [](Parameter*) {}};  // owns nothing
};

// Numbers of a model or an optimiser that are not learned by a gradient, by name: running
// statistics, moments. What is broadcast from the chief, and saved.
struct StateTensor {
  std::string name;
  Shape shape;
  std::span<float> values;
  bool of_all_ranks = false;  // statistics: the same on every rank after each pass
};

// Called by a backward pass as soon as a gradient has its final value in this pass.
using GradientReady = std::function<void(Parameter&)>;

}  // namespace ronde::trainer
