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
// Those in the memory of a device start at once in any case, since what is read is what the stream
// holds then.
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
    return append({std::move(submit), gradient.size_bytes()});
  }
  // In the memory of a device; what is read is behind `gradient.stream` as it is at ready().
  template <typename T>
  Id add(std::string name, const DeviceSpan<T>& gradient,
         std::source_location where = std::source_location::current()) {
    const std::lock_guard lock(mutex_);
    auto submit = [this, name = std::move(name), gradient, where](bool /*will_wait*/) {
      return engine_.allreduce(name, gradient, op_, options_, where);
    };
    return append({std::move(submit), gradient.data.size_bytes(), true});
  }

  // The gradient has its final value on this rank: it may be averaged. Throws the first error of
  // those that it starts, after all of them. One that wait(stream) left on its way is waited for.
  void ready(Id id) {
    if (const auto first = submit(hold(id), false)) std::rethrow_exception(first);
  }

  // Every gradient that was made ready since the last wait() now holds the average. Throws the
  // first error, after all of them are done.
  void wait() {
    std::exception_ptr first = end_step([](Entry& /*entry*/, Work work) { work.wait(); });
    for (Entry& entry : entries_) {
      keep_error(first, [&entry] { entry.finish(); });
    }
    if (first) std::rethrow_exception(first);
  }
  // What is put into `stream` (cudaStream_t, or nullptr for the default one) from now on begins
  // when the gradients in the memory of the device hold the averages; the host waits for the others
  // alone. It hears of an error of the device at the next ready() or wait().
  void wait(void* stream) {
    const auto first = end_step([stream](Entry& entry, Work work) {
      if (!entry.on_device) return work.wait();
      entry.left = std::move(work);
      entry.left.wait(stream);
    });
    if (first) std::rethrow_exception(first);
  }

 private:
  struct Entry {
    std::function<Work(bool will_wait)> submit;
    std::size_t bytes;
    bool on_device = false;
    bool held = false;
    Work left{};  // what a stream has been told to wait for, and the host has not waited for

    void finish() {
      if (left.valid()) std::exchange(left, {}).wait();
    }
  };
  struct InFlight {
    Id id;
    Work work;
  };

  Id append(Entry entry) {
    entries_.push_back(std::move(entry));
    return entries_.size() - 1;
  }

  // What is to be submitted now that this one has come.
  std::vector<Id> hold(Id id) {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_.at(id);
    if (entry.on_device) return {id};
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

  // Calls `call`; keeps what it throws unless there is something already.
  template <typename Call>
  static void keep_error(std::exception_ptr& first, const Call& call) {
    try {
      call();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }

  // Returns the first error: one that fails must not keep the others from the other ranks.
  std::exception_ptr submit(const std::vector<Id>& ids, bool will_wait) {
    std::exception_ptr first;
    for (const Id id : ids) {
      Entry& entry = at(id);
      keep_error(first, [&entry] { entry.finish(); });
      keep_error(first, [&] {
        Work work = entry.submit(will_wait);
        const std::lock_guard lock(mutex_);
        in_flight_.push_back({id, std::move(work)});
      });
    }
    return first;
  }

  // Starts what is held, and has `end` see to every work; returns the first error.
  template <typename End>
  std::exception_ptr end_step(const End& end) {
    std::exception_ptr first = submit(take_held(), true);
    std::vector<InFlight> works;
    {
      const std::lock_guard lock(mutex_);
      works.swap(in_flight_);
    }
    // The youngest first: whoever waits, works, and the older ones are over by then. The other way
    // round the work would change hands between this thread and the background at each of them.
    std::exception_ptr failed;
    for (auto one = works.rbegin(); one != works.rend(); ++one) {
      std::exception_ptr error;
      keep_error(error, [&] { end(at(one->id), std::move(one->work)); });
      if (error) failed = error;
    }
    return failed ? failed : first;
  }

  Entry& at(Id id) {
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
  std::vector<InFlight> in_flight_;
};

}  // namespace ronde
