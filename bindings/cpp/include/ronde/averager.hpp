// SPDX-License-Identifier: Apache-2.0
// Gradient averaging for a trainer's loop. Included by ronde.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
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
// Each wait() ends a step, also where nothing was made ready in it: what was registered and not
// made ready is averaged as it stands. Where a gradient is left out, set its memory to zeros first,
// as an optimiser's zero_grad() does. Every rank takes every step: one that has nothing to give
// calls wait() alone, or skip() and wait(). wait_again() is no step.
//
// No average mixes two steps, if every rank takes every step. The engine pairs the n-th submission
// of a name on one rank with the n-th on every other, and each step of a rank submits each gradient
// once: where one cannot be submitted, or the averager goes away in the middle of a step, something
// takes its place that fails it (RONDE_MISMATCH) on the ranks that give it. So the gradients, and
// the steps that an averager has taken when it goes away, must be the same on all ranks, and no
// other operation may have a gradient's name.
//
// A rank that leaves out a step (`continue` where its loss was no number) would have its later
// gradients averaged with older ones. Where the program numbers its steps, with begin_step(), that
// is RONDE_MISMATCH on all ranks in that very step. Where it does not, only the end shows it: once
// the rank that has taken fewer submits no more of them, the error of the others says so.
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
// Thread safety: add() while no other call runs (what comes in the middle of a step is averaged in
// it); ready(), skip(), start() and statistics() from any thread; wait() from one thread, while no
// ready() or skip() runs.
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
  // In the middle of a step (after a ready() or skip()) it ends the step: finishes what was made
  // ready, which the other ranks wait for too, and fails the rest on all ranks, since its memory
  // may go away next. Between steps it submits nothing. Where an exception has begun since it was
  // made it has no more time than a Work. Errors are reported by Engine::close().
  ~GradientAverager() {
    const bool unwinding = exceptions_.one_has_begun();
    try {
      give_up_step();
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
  // The engine reads a gradient on a device after what is in its stream at ready().
  template <OutputSpan R>
  Id add(std::string name, R&& gradient,
         std::source_location where = std::source_location::current()) {
    return append({std::move(name), detail::GradientMemory(detail::span_of(gradient)), where});
  }

  // The step that begins has this number, the same on all ranks: where another rank's has another
  // one, the gradients fail on all ranks (RONDE_MISMATCH, from wait()) and hold no average. Before
  // the first ready() of each step, in all of them or in none. Throws RONDE_INVALID_ARGUMENT in the
  // middle of a step, and for a number above 2^62.
  void begin_step(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    const bool inside =
        std::any_of(entries_.begin(), entries_.end(), [](const Entry& one) { return one.ready; });
    if (inside || number > (std::uint64_t{1} << 62U)) {
      throw Error(RONDE_INVALID_ARGUMENT,
                  "begin_step(" + std::to_string(number) + ")" +
                      (inside ? " in the middle of a step: call it after wait(), before ready()"
                              : ": steps are numbered up to 2^62"),
                  "", -1);
    }
    number_ = number;
  }

  // From now on this rank's gradients have this weight in the averages, such as the number of
  // samples of its batch (AllreduceOptions::weight): before the first ready() of a step, on every
  // rank, and anew where the number changes; it costs no agreement. Throws RONDE_INVALID_ARGUMENT
  // in the middle of a step.
  void weigh(double weight) {
    const std::lock_guard lock(mutex_);
    if (std::any_of(entries_.begin(), entries_.end(), [](const Entry& one) { return one.ready; })) {
      throw Error(RONDE_INVALID_ARGUMENT,
                  "weigh() in the middle of a step: call it after wait(), before ready()", "", -1);
    }
    options_.weight = weight;
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
  // own, since nothing says that its memory is still there. On a device it has no zeros: where only
  // some ranks leave such a gradient out later, its average fails on all of them.
  template <OutputSpan R>
  void ready(Id id, R&& gradient, std::source_location where = std::source_location::current()) {
    ready_at(id, detail::GradientMemory(detail::span_of(gradient)), where);
  }

  // Makes ready, and starts, what is not made ready yet in this step, as it stands: this rank has
  // nothing more to give. It is no gradient that was left out by mistake (Missing::kError).
  // Throws, after it has tried all, the first of their submit codes.
  void skip() { rethrow(submit(take_rest().ids, false)); }

  // Starts what is held back. Throws, after it has tried all, the first of their submit codes.
  void start() { rethrow(submit(take_held(), false)); }

  // Ends the step: averages what was not made ready too, and blocks until every gradient holds the
  // average. Throws when all of them are done: the first error of starting one (submit codes), or
  // else of an average (work codes), or else, with Missing::kError, RONDE_INVALID_ARGUMENT with the
  // names of those that this rank did not make ready. The step has ended then, too, unless nothing
  // could take a gradient's place, for want of memory or because another operation had its name: it
  // goes on then, and ends with the next wait().
  void wait() {
    const Stopwatch stopwatch(*this);
    rethrow(end_step([](Entry& /*entry*/, Work work) { work.wait(); }));
  }
  // The same, but for gradients in the memory of a device the host does not wait: what is put into
  // `stream` (cudaStream_t, or nullptr for the default one) from now on begins when they hold the
  // averages. An error that the device reports later is thrown by the wait that follows the
  // gradient's next ready(), or by wait_again().
  void wait(void* stream) {
    const Stopwatch stopwatch(*this);
    const std::exception_ptr failed = end_step([](Entry& entry, Work work) {
      if (!entry.now.on_device()) return work.wait();
      entry.left = std::move(work);
    });
    const std::exception_ptr unheard = let_wait(stream);
    rethrow(failed ? failed : unheard);
  }
  // After wait(stream) the host waits, too; no step, so a rank may do it alone. Throws the first
  // error of an average.
  void wait_again() {
    const Stopwatch stopwatch(*this);
    rethrow(for_each([](Entry& entry) { entry.finish(); }));
  }
  // Likewise, another stream waits. It may be called for several.
  void wait_again(void* stream) {
    const Stopwatch stopwatch(*this);
    rethrow(let_wait(stream));
  }

  // This rank has no more steps: Engine::join(), between steps. The others' steps go on without it,
  // and once all ranks have joined they are counted from the same number again. Throws
  // RONDE_INVALID_ARGUMENT in the middle of a step.
  int join() {
    {
      const std::lock_guard lock(mutex_);
      if (std::any_of(entries_.begin(), entries_.end(), [](auto& one) { return one.ready; })) {
        throw Error(RONDE_INVALID_ARGUMENT,
                    "join() in the middle of a step: call it after wait(), before ready()", "", -1);
      }
    }
    const int last = engine_.join();
    if (entries_.empty()) return last;
    std::uint64_t most = joined_at_ + statistics_.steps;
    engine_.allreduce_blocking(entries_.front().name + ".steps", std::span(&most, 1), max);
    const std::lock_guard lock(mutex_);
    joined_at_ = most - statistics_.steps;
    return last;
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
  struct Rest {
    std::vector<Id> ids;      // to be submitted
    std::vector<Id> missing;  // those of them that were not made ready
  };
  // Adds its life to the statistics.
  class Stopwatch {
   public:
    explicit Stopwatch(GradientAverager& averager) : averager_(averager) {}
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;
    ~Stopwatch() {
      const std::lock_guard lock(averager_.mutex_);
      averager_.statistics_.seconds_in_wait += seconds(Clock::now() - begin_);
    }

   private:
    GradientAverager& averager_;
    const Clock::time_point begin_ = Clock::now();
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
    in_flight_.reserve(entries_.size() + 1);
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
    if (id >= entries_.size()) throw detail::unknown_gradient(id, entries_.size());
    Entry& entry = entries_[id];
    if (entry.ready) {
      throw Error(RONDE_DUPLICATE_NAME,
                  "gradient '" + entry.name +
                      "' was made ready twice in one step: call ready() once for each, then wait()",
                  "", -1);
    }
    place(entry);
    held_.reserve(entries_.size());
    std::vector<Id> now;
    if (entry.now.on_device()) now.push_back(id);
    entry.ready = true;  // nothing throws from here on
    entry.taken = entry.now.on_device();
    if (entry.taken) return now;
    held_.push_back(id);
    held_bytes_ += entry.now.bytes;
    return held_bytes_ < how_.bucket_bytes ? now : take_all_held();
  }
  std::vector<Id> take_held() {
    const std::lock_guard lock(mutex_);
    return take_all_held();
  }
  std::vector<Id> take_all_held() {
    for (const Id id : held_) entries_[id].taken = true;
    held_bytes_ = 0;
    return std::exchange(held_, {});
  }
  // Takes what is held back, what could not be submitted, and, made ready as it stands, what is not
  // ready. If there is no memory for that nothing is taken.
  Rest take_rest() {
    const std::lock_guard lock(mutex_);
    Rest rest;
    rest.ids.reserve(entries_.size());
    rest.missing.reserve(entries_.size());
    for (Entry& entry : entries_) {
      if (!entry.ready) entry.leave_out();
    }
    for (const Id id : held_) rest.ids.push_back(id);
    take_all_held();
    for (Id id = 0; id < entries_.size(); ++id) {
      if (entries_[id].taken) continue;
      if (!entries_[id].ready) rest.missing.push_back(id);
      entries_[id].ready = entries_[id].taken = true;
      rest.ids.push_back(id);
    }
    return rest;
  }

  // The step that goes on, which is counted where the program gives it no number.
  detail::Step this_step() {
    const std::lock_guard lock(mutex_);
    if (number_) return {static_cast<std::int64_t>(*number_), true};
    return {static_cast<std::int64_t>(joined_at_ + statistics_.steps) + 1, false};
  }

  // Returns the first error: one that fails must not keep the others from the other ranks.
  std::exception_ptr submit(const std::vector<Id>& ids, bool will_wait) {
    AllreduceOptions options = options_;
    options.will_wait = will_wait;
    const detail::Step step = this_step();
    std::exception_ptr first;
    for (const Id id : ids) {
      Entry& entry = at(id);
      std::exception_ptr late;
      std::exception_ptr refused;
      std::exception_ptr lost;
      Work work;
      detail::keep_error(late, [&] { entry.finish(); });
      detail::keep_error(refused, [&] { work = entry.start(engine_.get(), op_, options, step); });
      if (refused) detail::keep_error(lost, [&] { work = entry.stand_in(engine_.get(), step); });
      if (!first) first = refused;
      const std::lock_guard lock(mutex_);
      if (!late_) late_ = late;
      if (lost) entry.taken = !detail::may_be_submitted_later(lost);
      if (!work.valid()) continue;
      if (refused) entry.now.device = RONDE_DEVICE_CPU;  // what stands in is the host's
      if (in_flight_.empty()) step_begin_ = Clock::now();
      in_flight_.push_back({id, std::move(work)});
    }
    return first;
  }

  void give_up_step() {
    submit(take_held(), true);
    if (std::none_of(entries_.begin(), entries_.end(), [](auto& one) { return one.ready; })) return;
    for (Id id = 0; id < entries_.size(); ++id) {
      std::exception_ptr lost;
      if (entries_[id].taken) continue;
      detail::keep_error(lost, [&] {
        in_flight_.push_back({id, entries_[id].stand_in(engine_.get(), this_step())});
      });
    }
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

  // Returns the first error.
  template <typename Call>
  std::exception_ptr for_each(const Call& call) {
    std::exception_ptr first;
    for (Entry& entry : entries_) detail::keep_error(first, [&] { call(entry); });
    return first;
  }
  std::exception_ptr let_wait(void* stream) {
    return for_each([stream](Entry& entry) {
      if (entry.left.valid()) entry.have_wait(stream);
    });
  }

  // Starts all that has not started, and calls `end` with every work; returns the first error.
  template <typename End>
  std::exception_ptr end_step(const End& end) {
    if (entries_.empty()) return nullptr;
    count_before_wait(Clock::now());
    const Rest rest = take_rest();
    const std::exception_ptr refused = submit(rest.ids, true);
    std::vector<InFlight> works;
    works.reserve(entries_.size());
    std::exception_ptr late;
    {
      const std::lock_guard lock(mutex_);
      works.swap(in_flight_);
      std::swap(late, late_);
      statistics_.tensors += works.size();
      for (const InFlight& one : works) statistics_.bytes += entries_[one.id].now.bytes;
      if (std::all_of(entries_.begin(), entries_.end(), [](auto& one) { return one.taken; })) {
        for (Entry& entry : entries_) entry.ready = entry.taken = false;
        ++statistics_.steps;
        number_.reset();
      }
    }
    // This thread waits for the youngest first: it drives the engine meanwhile, and the older ones
    // end before. In the other order this thread and the background thread would hand the role over
    // at each of them.
    std::exception_ptr failed;
    for (auto one = works.rbegin(); one != works.rend(); ++one) {
      std::exception_ptr error;
      detail::keep_error(error, [&] { end(at(one->id), std::move(one->work)); });
      if (error) failed = error;
    }
    if (late) return late;
    if (failed || refused) return refused ? refused : failed;
    const bool told = how_.missing == Missing::kError && !rest.missing.empty();
    return told ? detail::missing_error(entries_, rest.missing, engine_.rank()) : nullptr;
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
  std::vector<Id> held_;
  std::size_t held_bytes_ = 0;
  std::vector<InFlight> in_flight_;  // has room for all, so that none that was submitted is lost
  std::exception_ptr late_;          // the error of an average of the last step
  Clock::time_point step_begin_{};   // its first submission
  std::optional<std::uint64_t> number_;  // of the step, where the program gives one
  std::uint64_t joined_at_ = 0;          // steps of other ranks that this one has not taken
  AveragerStatistics statistics_;
  const detail::ExceptionMark exceptions_;
};

}  // namespace ronde
