// SPDX-License-Identifier: Apache-2.0
// Gradient averaging for a trainer's loop. Included by ronde.hpp.
#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <ronde/engine.hpp>
#include <ronde/range.hpp>
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
//   ronde::GradientAverager averager(engine);
//   const auto fc1 = averager.add("fc1/weight", std::span(gradient));   // once
//   averager.ready(fc1);                                                // in each step
//   averager.wait();
//
// The averager holds gradients back until `bucket_bytes` of them are ready, or until wait() or
// start(): to wake the background thread for a few small ones costs the trainer more than to
// average them with the next. How they are grouped changes no result, and ranks may group
// differently. With 0 each starts at once. Gradients in the memory of a device always do, since
// the engine reads what the stream holds then. The other ranks wait for what this one holds back:
// before it waits for one of them in another way (a barrier, another averager that they wait for
// first) it calls start().
//
// Ownership: the gradients' memory is the caller's, and must stay where it is for as long as the
// averager is used. The engine must outlive the averager, and stay open until the last wait().
//
// Errors: Error with the submit codes (ready(), start()) or the work codes too (wait()).
//
// Thread safety: add() before the first ready(); ready() and start() from any thread; wait() from
// one thread, while no ready() runs.
class GradientAverager {
 public:
  using Id = std::size_t;
  static constexpr std::size_t kBucketBytes = std::size_t{1} << 20;

  // Averages over the ranks of `engine`, with `op` and `options` for every gradient.
  explicit GradientAverager(Engine& engine, Op op = average, const AllreduceOptions& options = {},
                            std::size_t bucket_bytes = kBucketBytes)
      : engine_(engine), op_(op), options_(options), bucket_bytes_(bucket_bytes) {}
  GradientAverager(const GradientAverager&) = delete;
  GradientAverager& operator=(const GradientAverager&) = delete;
  // Finishes what was made ready, which the other ranks wait for too, and submits nothing else:
  // the gradients' memory may go away next. While an exception unwinds it has no more time than a
  // Work. Errors are reported by Engine::close().
  ~GradientAverager() {
    const bool unwinding = std::uncaught_exceptions() > exceptions_;
    try {
      submit(take_held(), true);
    } catch (...) {  // NOLINT(bugprone-empty-catch): a destructor cannot report it
    }
    for (auto one = in_flight_.rbegin(); one != in_flight_.rend(); ++one) {
      one->work.settle(unwinding);
    }
    for (Entry& entry : entries_) entry.left.settle(unwinding);
  }

  // Registers a gradient under a name of its own, the same on all ranks; returns its id.
  template <OutputRange R>
  Id add(std::string name, R&& gradient,
         std::source_location where = std::source_location::current()) {
    const auto span = detail::span_of(gradient);
    return append(std::move(name), span, span.size_bytes(), false, where);
  }
  // The same for a gradient in the memory of a device: the engine reads it after what is in
  // `gradient.stream` at ready().
  template <typename T>
  Id add(std::string name, const DeviceSpan<T>& gradient,
         std::source_location where = std::source_location::current()) {
    return append(std::move(name), gradient, gradient.data.size_bytes(), true, where);
  }

  // The gradient has its final value on this rank: it may be averaged. For a gradient on a device
  // whose average of the last step is still on its way the host waits. Throws, after it has tried
  // all that it starts, the first of their submit codes; RONDE_DUPLICATE_NAME if it is called again
  // before wait(); std::out_of_range for an id that add() did not return.
  void ready(Id id) {
    if (const auto first = submit(hold(id), false)) std::rethrow_exception(first);
  }

  // Starts what is held back. Throws, after it has tried all, the first of their submit codes.
  void start() {
    if (const auto first = submit(take_held(), false)) std::rethrow_exception(first);
  }

  // Ends the step: blocks until every gradient that was made ready since the last wait() holds the
  // average. Throws when all of them are done: the first error of an average (work codes), or else
  // of starting one (submit codes).
  void wait() {
    std::exception_ptr first = end_step([](Entry& /*entry*/, Work work) { work.wait(); });
    for (Entry& entry : entries_) {
      keep_error(first, [&entry] { entry.finish(); });
    }
    if (first) std::rethrow_exception(first);
  }
  // The same, but for gradients in the memory of a device the host does not wait: what is put into
  // `stream` (cudaStream_t, or nullptr for the default one) from now on begins when they hold the
  // averages. May be called for several streams. An error that the device reports later is
  // thrown by the wait that follows the gradient's next ready(), or by wait() of the host.
  void wait(void* stream) {
    std::exception_ptr first = end_step([](Entry& entry, Work work) {
      if (!entry.on_device) return work.wait();
      entry.left = std::move(work);
    });
    for (Entry& entry : entries_) {
      if (entry.left.valid()) keep_error(first, [&] { entry.have_wait(stream); });
    }
    if (first) std::rethrow_exception(first);
  }

 private:
  struct Entry {
    std::string name;
    std::function<Work(bool will_wait)> submit;
    std::size_t bytes;
    bool on_device;
    bool ready = false;  // in this step
    Work left{};         // what the host has not waited for, though the step is over

    void have_wait(void* stream) {
      try {
        left.wait(stream);
      } catch (...) {
        if (left.poll()) left = {};  // it has failed, with the error that is thrown here
        throw;
      }
    }
    void finish() {
      if (left.valid()) std::exchange(left, {}).wait();
    }
  };
  struct InFlight {
    Id id;
    Work work;
  };

  template <typename Gradient>
  Id append(std::string name, Gradient gradient, std::size_t bytes, bool on_device,
            const std::source_location& where) {
    auto submit = [this, name, gradient, where](bool will_wait) {
      AllreduceOptions options = options_;
      options.will_wait = will_wait;
      return engine_.allreduce(name, gradient, op_, options, where);
    };
    const std::lock_guard lock(mutex_);
    entries_.push_back({std::move(name), std::move(submit), bytes, on_device});
    return entries_.size() - 1;
  }

  // Returns what is to be submitted now that this one is ready.
  std::vector<Id> hold(Id id) {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_.at(id);
    if (entry.ready) {
      throw Error(RONDE_DUPLICATE_NAME,
                  "gradient '" + entry.name +
                      "' was made ready twice in one step: call ready() once for each, then wait()",
                  "", -1);
    }
    entry.ready = true;
    if (entry.on_device) return {id};
    held_.push_back(id);
    held_bytes_ += entry.bytes;
    if (held_bytes_ < bucket_bytes_) return {};
    held_bytes_ = 0;
    return std::exchange(held_, {});
  }
  std::vector<Id> take_held() {
    const std::lock_guard lock(mutex_);
    held_bytes_ = 0;
    return std::exchange(held_, {});
  }

  // Calls `call`; keeps what it throws unless an earlier error is kept.
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
      std::exception_ptr late;
      keep_error(late, [&entry] { entry.finish(); });
      keep_error(first, [&] {
        Work work = entry.submit(will_wait);
        const std::lock_guard lock(mutex_);
        in_flight_.push_back({id, std::move(work)});
      });
      const std::lock_guard lock(mutex_);
      if (!late_) late_ = late;
    }
    return first;
  }

  // Starts what is held, and calls `end` with every work; returns the first error.
  template <typename End>
  std::exception_ptr end_step(const End& end) {
    const std::exception_ptr refused = submit(take_held(), true);
    std::vector<InFlight> works;
    std::exception_ptr late;
    {
      const std::lock_guard lock(mutex_);
      works.swap(in_flight_);
      std::swap(late, late_);
      for (Entry& entry : entries_) entry.ready = false;
    }
    // This thread waits for the youngest first: it drives the engine meanwhile, and the older ones
    // end before. In the other order this thread and the background thread would hand the role over
    // at each of them.
    std::exception_ptr failed;
    for (auto one = works.rbegin(); one != works.rend(); ++one) {
      std::exception_ptr error;
      keep_error(error, [&] { end(at(one->id), std::move(one->work)); });
      if (error) failed = error;
    }
    if (late) return late;
    return failed ? failed : refused;
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
  std::exception_ptr late_;  // the error of an average of the last step
  const int exceptions_ = std::uncaught_exceptions();
};

}  // namespace ronde
