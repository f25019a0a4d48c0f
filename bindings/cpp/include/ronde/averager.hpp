// SPDX-License-Identifier: Apache-2.0
// Gradient averaging for a trainer's loop. Included by ronde.hpp.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <ronde/averager_options.hpp>
#include <ronde/engine.hpp>
#include <ronde/gradient.hpp>
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
// A step begins with the first ready() or skip() and ends with wait(), which completes it: what was
// registered and not made ready is averaged as it stands, so that no average mixes two steps. Where
// a gradient is left out, set its memory to zeros first, as an optimiser's zero_grad() does. Every
// rank takes every step: one that has nothing to give calls skip() and wait(). wait() without a
// ready() or skip() since the last wait() is no step.
//
// The averager holds gradients back until `bucket_bytes` of them are ready, or until wait() or
// start(): to wake the background thread for a few small ones costs the trainer more than to
// average them with the next. How they are grouped changes no result, and ranks may group
// differently. With 0 each starts at once. Gradients in the memory of a device always do, since
// the engine reads what the stream holds then. The other ranks wait for what this one holds back:
// before it waits for one of them in another way (a barrier, another averager that they wait for
// first) it calls start(). statistics() says how much ran before wait().
//
// Ownership: the gradients' memory is the caller's. That of add() must stay where it is for as long
// as the averager is used, unless every ready() gives a span; that of ready(id, span) must stay
// until wait(). The engine must outlive the averager, and stay open until the last wait().
//
// Errors: Error with the submit codes (add(), ready(), start(), skip()) or the work codes too
// (wait()).
//
// Thread safety: add() before the first ready(); ready(), skip(), start() and statistics() from any
// thread; wait() from one thread, while no ready() or skip() runs.
class GradientAverager {
 public:
  using Id = std::size_t;
  static constexpr std::size_t kBucketBytes = AveragerOptions{}.bucket_bytes;

  // Averages over the ranks of `engine`, with `op` and `options` for every gradient.
  explicit GradientAverager(Engine& engine, Op op = average, const AllreduceOptions& options = {},
                            std::size_t bucket_bytes = kBucketBytes)
      : GradientAverager(engine, op, options, AveragerOptions{.bucket_bytes = bucket_bytes}) {}
  GradientAverager(Engine& engine, Op op, const AllreduceOptions& options,
                   const AveragerOptions& averager_options)
      : engine_(engine), op_(op), options_(options), how_(averager_options) {}
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

  // Registers a gradient under a name of its own, the same on all ranks; returns its id. Throws
  // RONDE_DUPLICATE_NAME for a name that is registered, and RONDE_INVALID_ARGUMENT for memory that
  // overlaps with a registered gradient's (tied weights have one gradient: register it once).
  template <OutputRange R>
  Id add(std::string name, R&& gradient,
         std::source_location where = std::source_location::current()) {
    return append({std::move(name), detail::GradientMemory(detail::span_of(gradient)), where});
  }
  // The same for a gradient in the memory of a device: the engine reads it after what is in
  // `gradient.stream` at ready().
  template <typename T>
  Id add(std::string name, const DeviceSpan<T>& gradient,
         std::source_location where = std::source_location::current()) {
    return append({std::move(name), detail::GradientMemory(gradient), where});
  }

  // The gradient has its final value on this rank: it may be averaged. For a gradient on a device
  // whose average of the last step is still on its way the host waits. Throws, after it has tried
  // all that it starts, the first of their submit codes; RONDE_DUPLICATE_NAME if it is called again
  // before wait(); RONDE_INVALID_ARGUMENT for an id that add() did not return.
  void ready(Id id) {
    rethrow(submit(hold(id, [](Entry& entry) { entry.stay(); }), false));
  }
  // The same for a gradient that lies elsewhere in this step, as where a framework allocates it
  // anew: the average is written there. Throws RONDE_INVALID_ARGUMENT if the count or the type is
  // not that of add(). A later step that leaves this gradient out averages zeros of the averager's
  // own, since nothing says that its memory is still there.
  template <OutputRange R>
  void ready(Id id, R&& gradient, std::source_location where = std::source_location::current()) {
    ready_at(id, detail::GradientMemory(detail::span_of(gradient)), where);
  }
  // On a device the averager has no zeros: where only some ranks leave such a gradient out later,
  // its average fails on all of them.
  template <typename T>
  void ready(Id id, const DeviceSpan<T>& gradient,
             std::source_location where = std::source_location::current()) {
    ready_at(id, detail::GradientMemory(gradient), where);
  }

  // Makes ready, and starts, what is not made ready yet in this step, as it stands: this rank has
  // nothing more to give. It is no gradient that was left out by mistake (Missing::kError).
  // Throws, after it has tried all, the first of their submit codes.
  void skip() {
    std::vector<Id> ids = take_held();
    const std::vector<Id> rest = take_missing();
    ids.insert(ids.end(), rest.begin(), rest.end());
    rethrow(submit(ids, false));
  }

  // Starts what is held back. Throws, after it has tried all, the first of their submit codes.
  void start() { rethrow(submit(take_held(), false)); }

  // Ends the step: averages what was not made ready too, and blocks until every gradient holds the
  // average. Throws when all of them are done: the first error of an average (work codes), or else
  // of starting one (submit codes), or else, with Missing::kError, RONDE_INVALID_ARGUMENT with the
  // names of those that this rank did not make ready.
  void wait() {
    complete_step([](Entry& /*entry*/, Work work) { work.wait(); },
                  [](Entry& entry) { entry.finish(); });
  }
  // The same, but for gradients in the memory of a device the host does not wait: what is put into
  // `stream` (cudaStream_t, or nullptr for the default one) from now on begins when they hold the
  // averages. May be called for several streams. An error that the device reports later is
  // thrown by the wait that follows the gradient's next ready(), or by wait() of the host.
  void wait(void* stream) {
    complete_step(
        [](Entry& entry, Work work) {
          if (!entry.now.on_device) return work.wait();
          entry.left = std::move(work);
        },
        [stream](Entry& entry) {
          if (entry.left.valid()) entry.have_wait(stream);
        });
  }

  // What the steps so far came to.
  [[nodiscard]] AveragerStatistics statistics() const {
    const std::lock_guard lock(mutex_);
    return statistics_;
  }

 private:
  using Entry = detail::Gradient;
  using Clock = std::chrono::steady_clock;
  struct InFlight {
    Id id;
    Work work;
  };

  static double seconds(Clock::duration span) {
    return std::chrono::duration<double>(span).count();
  }
  static void rethrow(const std::exception_ptr& error) {
    if (error) std::rethrow_exception(error);
  }

  Id append(Entry entry) {
    const std::lock_guard lock(mutex_);
    for (const Entry& before : entries_) before.refuse_twin(entry);
    entries_.push_back(std::move(entry));
    return entries_.size() - 1;
  }

  void ready_at(Id id, const detail::GradientMemory& memory, const std::source_location& where) {
    rethrow(submit(hold(id, [&](Entry& entry) { entry.move_to(memory, where); }), false));
  }

  // Calls `place`, which says where the gradient lies in this step; returns what is to be submitted
  // now that it is ready.
  template <typename Place>
  std::vector<Id> hold(Id id, const Place& place) {
    const std::lock_guard lock(mutex_);
    if (id >= entries_.size()) throw Error(RONDE_INVALID_ARGUMENT, unknown(id), "", -1);
    Entry& entry = entries_[id];
    if (entry.ready) {
      throw Error(RONDE_DUPLICATE_NAME,
                  "gradient '" + entry.name +
                      "' was made ready twice in one step: call ready() once for each, then wait()",
                  "", -1);
    }
    place(entry);
    entry.ready = true;
    stepping_ = true;
    if (entry.now.on_device) return {id};
    held_.push_back(id);
    held_bytes_ += entry.now.bytes;
    if (held_bytes_ < how_.bucket_bytes) return {};
    held_bytes_ = 0;
    return std::exchange(held_, {});
  }
  std::vector<Id> take_held() {
    const std::lock_guard lock(mutex_);
    held_bytes_ = 0;
    return std::exchange(held_, {});
  }
  // Makes ready what is not, as it stands, and returns it.
  std::vector<Id> take_missing() {
    const std::lock_guard lock(mutex_);
    stepping_ = true;
    std::vector<Id> missing;
    for (Id id = 0; id < entries_.size(); ++id) {
      if (entries_[id].ready) continue;
      entries_[id].leave_out();
      entries_[id].ready = true;
      missing.push_back(id);
    }
    return missing;
  }

  [[nodiscard]] std::string unknown(Id id) const {
    const std::size_t count = entries_.size();
    if (count == 0) return "ready(" + std::to_string(id) + "): add() has returned none yet";
    return "ready(" + std::to_string(id) + "): add() has returned the ids of " +
           std::to_string(count) + (count == 1 ? " gradient" : " gradients") +
           ", which count from 0";
  }
  // Names a few, since there may be thousands.
  [[nodiscard]] std::exception_ptr missing_error(const std::vector<Id>& missing) const {
    constexpr std::size_t kNamed = 8;
    std::string names;
    for (std::size_t i = 0; i < missing.size() && i < kNamed; ++i) {
      names += (i == 0 ? "" : ", ") + entries_[missing[i]].registered_at();
    }
    if (missing.size() > kNamed) {
      names += " and " + std::to_string(missing.size() - kNamed) + " more";
    }
    return std::make_exception_ptr(
        Error(RONDE_INVALID_ARGUMENT,
              std::to_string(missing.size()) + " of " + std::to_string(entries_.size()) +
                  " gradients were not made ready in this step on rank " +
                  std::to_string(engine_.rank()) + ", and were averaged as they stood: " + names +
                  ": call ready() for each, or skip() if this rank has nothing more to give",
              detail::place_of(entries_[missing.front()].where), engine_.rank()));
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
        AllreduceOptions options = options_;
        options.will_wait = will_wait;
        Work work = entry.start(engine_.get(), op_, options);
        const std::lock_guard lock(mutex_);
        if (in_flight_.empty()) step_begin_ = Clock::now();
        in_flight_.push_back({id, std::move(work)});
      });
      const std::lock_guard lock(mutex_);
      if (!late_) late_ = late;
    }
    return first;
  }

  // Counts what has run beside the trainer, which calls wait() now.
  void count_before_wait(Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    if (!in_flight_.empty()) statistics_.seconds_before_wait += seconds(now - step_begin_);
    for (const InFlight& one : in_flight_) {
      const std::size_t bytes = entries_[one.id].now.bytes;
      ++statistics_.tensors_submitted_before_wait;
      statistics_.bytes_submitted_before_wait += bytes;
      if (!one.work.poll()) continue;
      ++statistics_.tensors_done_before_wait;
      statistics_.bytes_done_before_wait += bytes;
    }
  }

  // Completes the step if there is one. Then `rest` deals with what an entry has left over from
  // this step or the last.
  template <typename End, typename Rest>
  void complete_step(const End& end, const Rest& rest) {
    const Clock::time_point begin = Clock::now();
    std::exception_ptr first = stepping() ? end_step(end, begin) : nullptr;
    for (Entry& entry : entries_) keep_error(first, [&] { rest(entry); });
    {
      const std::lock_guard lock(mutex_);
      statistics_.seconds_in_wait += seconds(Clock::now() - begin);
    }
    rethrow(first);
  }
  bool stepping() {
    const std::lock_guard lock(mutex_);
    return stepping_;
  }

  // Starts all that has not started, and calls `end` with every work; returns the first error.
  template <typename End>
  std::exception_ptr end_step(const End& end, Clock::time_point begin) {
    count_before_wait(begin);
    std::vector<Id> ids = take_held();
    const std::vector<Id> missing = take_missing();
    ids.insert(ids.end(), missing.begin(), missing.end());
    const std::exception_ptr refused = submit(ids, true);
    std::vector<InFlight> works;
    std::exception_ptr late;
    {
      const std::lock_guard lock(mutex_);
      works.swap(in_flight_);
      std::swap(late, late_);
      for (Entry& entry : entries_) entry.ready = false;
      stepping_ = false;
      ++statistics_.steps;
      statistics_.tensors += works.size();
      for (const InFlight& one : works) statistics_.bytes += entries_[one.id].now.bytes;
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
    if (failed || refused) return failed ? failed : refused;
    const bool told = how_.missing == Missing::kError && !missing.empty();
    return told ? missing_error(missing) : nullptr;
  }

  Entry& at(Id id) {
    const std::lock_guard lock(mutex_);
    return entries_.at(id);
  }

  Engine& engine_;
  Op op_;
  AllreduceOptions options_;
  const AveragerOptions how_;
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;  // a deque: references stay valid while it grows
  bool stepping_ = false;      // a ready() or skip() since the last wait()
  std::vector<Id> held_;
  std::size_t held_bytes_ = 0;
  std::vector<InFlight> in_flight_;
  std::exception_ptr late_;         // the error of an average of the last step
  Clock::time_point step_begin_{};  // its first submission
  AveragerStatistics statistics_;
  const int exceptions_ = std::uncaught_exceptions();
};

}  // namespace ronde
