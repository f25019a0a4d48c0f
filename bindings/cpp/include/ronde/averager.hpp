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
// Gradients are held back until `bucket_bytes` of them have come or wait() is called: to wake the
// background thread for a few small ones costs the trainer more than to average them with the next.
// How they are grouped changes no result, and ranks may group differently. 0: each starts at once.
//
// Thread safety: add() before the first ready(); ready() from any thread; wait() from one thread,
// when no ready() of the step is still to come.
class GradientAverager {
 public:
  using Id = std::size_t;
  static constexpr std::size_t kBucketBytes = std::size_t{1} << 20;

  explicit GradientAverager(Engine& engine, Op op = average, const AllreduceOptions& options = {},
                            std::size_t bucket_bytes = kBucketBytes)
      : engine_(engine), op_(op), options_(options), bucket_bytes_(bucket_bytes) {}
  GradientAverager(const GradientAverager&) = delete;
  GradientAverager& operator=(const GradientAverager&) = delete;
  // Waits for what was made ready, since the gradients' memory may go away next (an exception
  // between ready() and wait(), say), and the other ranks wait for it too.
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
    auto submit = [this, name = std::move(name), gradient, where](bool will_wait) {
      AllreduceOptions options = options_;
      options.will_wait = will_wait;
      return engine_.allreduce(name, gradient, op_, options, where);
    };
    entries_.push_back({std::move(submit), gradient.size_bytes()});
    return entries_.size() - 1;
  }

  // The gradient has its final value on this rank: it may be averaged. Throws the first error of
  // those that it starts, after all of them.
  void ready(Id id) {
    if (const auto first = submit(hold(id), false)) std::rethrow_exception(first);
  }

  // Every gradient that was made ready since the last wait() now holds the average. Throws the
  // first error, after all of them are done.
  void wait() {
    std::exception_ptr first = submit(take_held(), true);
    std::vector<Work> works;
    {
      const std::lock_guard lock(mutex_);
      works.swap(in_flight_);
    }
    // The youngest first: whoever waits, works, and the older ones are over by then. The other way
    // round the work would change hands between this thread and the background at each of them.
    std::exception_ptr failed;
    for (auto work = works.rbegin(); work != works.rend(); ++work) {
      try {
        work->wait();
      } catch (...) {
        failed = std::current_exception();
      }
    }
    if (failed) std::rethrow_exception(failed);
    if (first) std::rethrow_exception(first);
  }

 private:
  struct Entry {
    std::function<Work(bool will_wait)> submit;
    std::size_t bytes;
    bool held = false;
  };

  // What is to be submitted now that this one has come.
  std::vector<Id> hold(Id id) {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_.at(id);
    // Twice in one step is an error, which the engine has the text for.
    const bool twice = entry.held;
    entry.held = true;
    held_.push_back(id);
    held_bytes_ += entry.bytes;
    return twice || held_bytes_ >= bucket_bytes_ ? take_held_locked() : std::vector<Id>();
  }
  std::vector<Id> take_held() {
    const std::lock_guard lock(mutex_);
    return take_held_locked();
  }
  std::vector<Id> take_held_locked() {
    for (const Id id : held_) entries_[id].held = false;
    held_bytes_ = 0;
    return std::exchange(held_, {});
  }

  // Returns the first error: one that fails must not keep the others from the other ranks.
  std::exception_ptr submit(const std::vector<Id>& ids, bool will_wait) {
    std::exception_ptr first;
    for (const Id id : ids) {
      try {
        Work work = entry(id).submit(will_wait);
        const std::lock_guard lock(mutex_);
        in_flight_.push_back(std::move(work));
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    return first;
  }
  const Entry& entry(Id id) {
    const std::lock_guard lock(mutex_);
    return entries_.at(id);
  }

  Engine& engine_;
  Op op_;
  AllreduceOptions options_;
  const std::size_t bucket_bytes_;
  std::mutex mutex_;
  std::deque<Entry> entries_;  // a deque: references stay valid while it grows
  std::vector<Id> held_;
  std::size_t held_bytes_ = 0;
  std::vector<Work> in_flight_;
};

}  // namespace ronde
