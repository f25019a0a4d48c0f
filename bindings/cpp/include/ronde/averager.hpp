// SPDX-License-Identifier: Apache-2.0
// Gradient averaging for a trainer's loop. Included by ronde.hpp.
#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <ronde/engine.hpp>
#include <ronde/types.hpp>
#include <ronde/work.hpp>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ronde {

// Drop-in gradient averaging for a trainer's loop: register each gradient once, call ready() as
// backward produces it (any order, any thread), wait() before the optimiser's step.
//
// Thread safety: add() before the first ready(); ready() from any thread; wait() from one thread,
// when no ready() of the step is still to come.
class GradientAverager {
 public:
  using Id = std::size_t;

  explicit GradientAverager(Engine& engine, Op op = average, const AllreduceOptions& options = {})
      : engine_(engine), op_(op), options_(options) {}
  GradientAverager(const GradientAverager&) = delete;
  GradientAverager& operator=(const GradientAverager&) = delete;
  // Waits for what is in flight, since the gradients' memory may go away next (an exception between
  // ready() and wait(), say).
  ~GradientAverager() {
    try {
      wait();
    } catch (...) {  // NOLINT(bugprone-empty-catch): a destructor has nobody to tell
    }
  }

  // The gradient's memory must stay where it is for as long as the averager is used.
  template <typename T, std::size_t N>
  Id add(std::string name, std::span<T, N> gradient,
         std::source_location where = std::source_location::current()) {
    const std::lock_guard lock(mutex_);
    entries_.push_back([this, name = std::move(name), gradient, where] {
      return engine_.allreduce(name, gradient, op_, options_, where);
    });
    return entries_.size() - 1;
  }

  // The gradient has its final value on this rank: starts to average it.
  void ready(Id id) {
    Work work = entry(id)();
    const std::lock_guard lock(mutex_);
    in_flight_.push_back(std::move(work));
  }

  // Every gradient that was made ready since the last wait() now holds the average. Throws the
  // first error, after all of them are done.
  void wait() {
    std::vector<Work> works;
    {
      const std::lock_guard lock(mutex_);
      works.swap(in_flight_);
    }
    std::exception_ptr first;
    for (Work& work : works) {
      try {
        work.wait();
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
  }

 private:
  const std::function<Work()>& entry(Id id) {
    const std::lock_guard lock(mutex_);
    return entries_.at(id);
  }

  Engine& engine_;
  Op op_;
  AllreduceOptions options_;
  std::mutex mutex_;
  std::deque<std::function<Work()>> entries_;  // a deque: references stay valid while it grows
  std::vector<Work> in_flight_;
};

}  // namespace ronde
