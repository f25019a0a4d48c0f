// SPDX-License-Identifier: Apache-2.0
// The C++ facade of Ronde: header-only, over the C ABI of ronde.h. Errors are exceptions here.
//
//   ronde::Engine engine;    // joins the MPI job; alone it is a job of one
//   ronde::Work work = engine.allreduce("fc1/weight", std::span(gradient), ronde::average);
//   work.wait();             // throws ronde::Error
//
// Thread safety: an Engine may be used from any number of threads at once (not its destructor); a
// Work by one thread at a time.
//
// One file on purpose, longer than others here: a program includes it, or copies it, as it is.
#pragma once

#include <ronde/ronde.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ronde {

// What every failing call throws. what() is one line that says what, where and what to do.
class Error : public std::runtime_error {
 public:
  Error(ronde_status status, const std::string& message, std::string place, int rank)
      : std::runtime_error(message), status_(status), place_(std::move(place)), rank_(rank) {}

  [[nodiscard]] ronde_status status() const noexcept { return status_; }
  // "file:line" where the error was first noticed.
  [[nodiscard]] const std::string& place() const noexcept { return place_; }
  // The rank at fault, or -1.
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  ronde_status status_;
  std::string place_;
  int rank_;
};

enum class Op : std::int32_t {
  kAverage = RONDE_AVERAGE,
  kSum = RONDE_SUM,
  kMin = RONDE_MIN,
  kMax = RONDE_MAX,
  kProduct = RONDE_PRODUCT
};
inline constexpr Op average = Op::kAverage;
inline constexpr Op sum = Op::kSum;
inline constexpr Op min = Op::kMin;
inline constexpr Op max = Op::kMax;
inline constexpr Op product = Op::kProduct;

// 16-bit floating types as they lie in memory; any type with the same bits can be cast to them.
struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

namespace detail {

template <typename T>
inline constexpr bool kNoDType = false;

template <typename T>
constexpr ronde_dtype dtype_of() {
  if constexpr (std::is_same_v<T, float>) {
    return RONDE_F32;
  } else if constexpr (std::is_same_v<T, double>) {
    return RONDE_F64;
  } else if constexpr (std::is_same_v<T, Float16>) {
    return RONDE_F16;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return RONDE_BF16;
  } else if constexpr (std::is_same_v<T, bool>) {
    return RONDE_BOOL;
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 1) {
    return std::is_signed_v<T> ? RONDE_I8 : RONDE_U8;
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 2) {
    return std::is_signed_v<T> ? RONDE_I16 : RONDE_U16;
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 4) {
    return std::is_signed_v<T> ? RONDE_I32 : RONDE_U32;
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 8) {
    return std::is_signed_v<T> ? RONDE_I64 : RONDE_U64;
  } else {
    static_assert(kNoDType<T>, "Ronde has no dtype for this type");
  }
}

// Turns an error of the C ABI into an exception.
class ErrorSlot {
 public:
  ErrorSlot() = default;
  ErrorSlot(const ErrorSlot&) = delete;
  ErrorSlot& operator=(const ErrorSlot&) = delete;
  ~ErrorSlot() { ronde_error_release(error_); }

  ronde_error** operator&() { return &error_; }  // NOLINT(google-runtime-operator)

  void throw_if(ronde_status status) const {
    if (status == RONDE_OK) return;
    if (error_ == nullptr) throw Error(status, ronde_status_name(status), "", -1);
    throw Error(status, ronde_error_message(error_), ronde_error_place(error_),
                ronde_error_rank(error_));
  }

 private:
  ronde_error* error_ = nullptr;
};

struct WorkDeleter {
  void operator()(ronde_work* work) const { ronde_work_release(work); }
};
struct EngineDeleter {
  // Failing works have told their waiters; a destructor has nobody else to tell.
  void operator()(ronde_engine* engine) const { ronde_engine_close(engine, nullptr); }
};
struct LocalJobDeleter {
  void operator()(ronde_local_job* job) const { ronde_local_job_release(job); }
};

}  // namespace detail

// The handle of an operation in flight. Dropping it without wait() is allowed: the operation goes
// on, and its memory must stay valid until then.
class Work {
 public:
  Work() = default;
  explicit Work(ronde_work* work) : work_(work) {}

  // Blocks until the operation is done, helping it along; throws Error if it failed. Afterwards
  // the engine does not touch the operation's memory again.
  void wait() {
    detail::ErrorSlot error;
    error.throw_if(ronde_work_wait(get(), &error));
  }
  // Waits at most `timeout`; true when the operation is done. Throws Error if it failed.
  template <typename Rep, typename Period>
  [[nodiscard]] bool wait_for(std::chrono::duration<Rep, Period> timeout) {
    using Nanoseconds = std::chrono::duration<double, std::nano>;
    constexpr double kLongest = 1e18;  // some thirty years: beyond that a count of int64 overflows
    const double nanoseconds = std::min(Nanoseconds(timeout).count(), kLongest);
    detail::ErrorSlot error;
    std::int32_t done = 0;
    error.throw_if(
        ronde_work_wait_for(get(), static_cast<std::int64_t>(nanoseconds), &done, &error));
    return done != 0;
  }
  // True when the operation is done, completed or failed. Never blocks.
  [[nodiscard]] bool poll() const { return ronde_work_poll(get()) != 0; }

  // The result of an allgather that is done: valid as long as this Work. T is the type that was
  // gathered.
  template <typename T>
  [[nodiscard]] std::span<const T> output() const {
    const Output result = find_output();
    if (result.dtype != detail::dtype_of<T>()) {
      throw std::logic_error("ronde::Work::output: the gathered elements have another type");
    }
    std::size_t count = 1;
    for (const std::int64_t dimension : result.shape) count *= static_cast<std::size_t>(dimension);
    return {static_cast<const T*>(result.data), count};
  }
  [[nodiscard]] std::vector<std::int64_t> output_shape() const {
    const Output result = find_output();
    return {result.shape.begin(), result.shape.end()};
  }

  [[nodiscard]] bool valid() const noexcept { return work_ != nullptr; }

 private:
  [[nodiscard]] ronde_work* get() const {
    if (work_ == nullptr) throw std::logic_error("ronde::Work is empty");
    return work_.get();
  }
  struct Output {
    const void* data;
    std::span<const std::int64_t> shape;
    std::int32_t dtype;
  };
  [[nodiscard]] Output find_output() const {
    const void* data = nullptr;
    const std::int64_t* shape = nullptr;
    std::int32_t dimensions = 0;
    std::int32_t dtype = 0;
    detail::ErrorSlot error;
    error.throw_if(ronde_work_output(get(), &data, &shape, &dimensions, &dtype, &error));
    return {data, {shape, static_cast<std::size_t>(dimensions)}, dtype};
  }
  std::unique_ptr<ronde_work, detail::WorkDeleter> work_;
};

// A job whose ranks are engines in this process: for tests of a trainer.
class LocalJob {
 public:
  explicit LocalJob(int size) {
    detail::ErrorSlot error;
    ronde_local_job* job = nullptr;
    error.throw_if(ronde_local_job_create(size, &job, &error));
    job_.reset(job);
  }
  [[nodiscard]] ronde_local_job* get() const noexcept { return job_.get(); }

 private:
  std::unique_ptr<ronde_local_job, detail::LocalJobDeleter> job_;
};

struct AllreduceOptions {
  double prescale = 1.0;
  double postscale = 1.0;
  int priority = 0;
};

class Engine {
 public:
  // Joins the MPI job (starting MPI if the program has not); alone it is a job of one. Blocks until
  // every rank has opened its engine.
  Engine() {
    ronde_engine_options options;
    ronde_engine_options_init(&options);
    open(options);
  }
  // Joins the job of a communicator: `Engine engine(ronde_options)` with mpi_communicator set.
  explicit Engine(const ronde_engine_options& options) { open(options); }
  // One rank of a job in this process.
  Engine(const LocalJob& job, int rank) {
    ronde_engine_options options;
    ronde_engine_options_init(&options);
    options.local_job = job.get();
    options.local_job_rank = rank;
    open(options);
  }

  [[nodiscard]] int rank() const { return ronde_rank(get()); }
  [[nodiscard]] int size() const { return ronde_size(get()); }
  [[nodiscard]] int local_rank() const { return ronde_local_rank(get()); }
  [[nodiscard]] int local_size() const { return ronde_local_size(get()); }

  // In place; asynchronous. `data` belongs to the engine until the Work is done.
  template <typename T, std::size_t N>
  Work allreduce(const std::string& name, std::span<T, N> data, Op op = average,
                 const AllreduceOptions& options = {},
                 std::source_location where = std::source_location::current()) {
    return start(ronde_allreduce_async, Vector(name, data, where).reduced(op, options).request);
  }
  // Out of place; asynchronous. The two spans have the same length and do not overlap.
  template <typename T, std::size_t N, std::size_t M>
  Work allreduce(const std::string& name, std::span<const T, N> input, std::span<T, M> output,
                 Op op, const AllreduceOptions& options = {},
                 std::source_location where = std::source_location::current()) {
    require_same_length(input.size(), output.size());
    Vector vector(name, output, where);
    vector.request.input = input.data();
    return start(ronde_allreduce_async, vector.reduced(op, options).request);
  }
  // In place; returns when done.
  template <typename T, std::size_t N>
  void allreduce_blocking(const std::string& name, std::span<T, N> data, Op op = average,
                          const AllreduceOptions& options = {},
                          std::source_location where = std::source_location::current()) {
    finish(ronde_allreduce, Vector(name, data, where).reduced(op, options).request);
  }

  // Everybody gets the values of `root`. In place; asynchronous.
  template <typename T, std::size_t N>
  Work broadcast(const std::string& name, std::span<T, N> data, int root = 0,
                 std::source_location where = std::source_location::current()) {
    return start(ronde_broadcast_async, Vector(name, data, where).rooted(root).request);
  }
  template <typename T, std::size_t N>
  void broadcast_blocking(const std::string& name, std::span<T, N> data, int root = 0,
                          std::source_location where = std::source_location::current()) {
    finish(ronde_broadcast, Vector(name, data, where).rooted(root).request);
  }

  // The values of all ranks, in rank order; lengths may differ. The result is Work::output<T>().
  template <typename T, std::size_t N>
  Work allgather(const std::string& name, std::span<const T, N> data,
                 std::source_location where = std::source_location::current()) {
    return start(ronde_allgather_async, Vector(name, data, where).request);
  }
  template <typename T, std::size_t N>
  std::vector<T> allgather_blocking(const std::string& name, std::span<const T, N> data,
                                    std::source_location where = std::source_location::current()) {
    const Vector vector(name, data, where);
    detail::ErrorSlot error;
    ronde_work* work = nullptr;
    error.throw_if(ronde_allgather(get(), &vector.request, &work, &error));
    const Work done(work);
    const std::span<const T> result = done.output<T>();
    return {result.begin(), result.end()};
  }

  // Done when every rank has called it with this name.
  Work barrier(const std::string& name = "barrier",
               std::source_location where = std::source_location::current()) {
    return start(ronde_barrier_async, named(name, where));
  }
  void barrier_blocking(const std::string& name = "barrier",
                        std::source_location where = std::source_location::current()) {
    finish(ronde_barrier, named(name, where));
  }

  [[nodiscard]] ronde_statistics statistics() const {
    ronde_statistics statistics;
    ronde_statistics_init(&statistics);
    detail::ErrorSlot error;
    error.throw_if(ronde_engine_statistics(get(), &statistics, &error));
    return statistics;
  }

  // Completes or fails every work; throws when works were failed. The engine is gone afterwards.
  void close() {
    detail::ErrorSlot error;
    error.throw_if(ronde_engine_close(engine_.release(), &error));
  }

  [[nodiscard]] ronde_engine* get() const {
    if (engine_ == nullptr) throw std::logic_error("ronde::Engine has been closed");
    return engine_.get();
  }

 private:
  // The request for a one-dimensional tensor; stays where it is, since it points into itself.
  struct Vector {
    template <typename T, std::size_t N>
    Vector(const std::string& name, std::span<T, N> data, const std::source_location& where)
        : request(named(name, where)), length(static_cast<std::int64_t>(data.size())) {
      request.shape = &length;
      request.dimensions = 1;
      request.dtype = detail::dtype_of<std::remove_const_t<T>>();
      if constexpr (std::is_const_v<T>) {
        request.input = data.data();
      } else {
        request.output = data.data();
      }
    }
    Vector(const Vector&) = delete;
    Vector& operator=(const Vector&) = delete;

    Vector& reduced(Op op, const AllreduceOptions& options) {
      request.op = static_cast<std::int32_t>(op);
      request.prescale = options.prescale;
      request.postscale = options.postscale;
      request.priority = options.priority;
      return *this;
    }
    Vector& rooted(int root) {
      request.root = root;
      return *this;
    }

    ronde_request request;
    std::int64_t length;
  };

  void open(const ronde_engine_options& options) {
    detail::ErrorSlot error;
    ronde_engine* engine = nullptr;
    error.throw_if(ronde_engine_open(&options, &engine, &error));
    engine_.reset(engine);
  }

  static ronde_request named(const std::string& name, const std::source_location& where) {
    ronde_request request;
    ronde_request_init(&request);
    request.name = name.c_str();
    request.file = where.file_name();
    request.line = static_cast<std::int32_t>(where.line());
    return request;
  }

  static void require_same_length(std::size_t input, std::size_t output) {
    if (input != output) {
      throw Error(RONDE_INVALID_ARGUMENT,
                  "input has " + std::to_string(input) + " elements and output " +
                      std::to_string(output) + ": make them equal",
                  "", -1);
    }
  }

  using AsyncCall = ronde_status(ronde_engine*, const ronde_request*, ronde_work**, ronde_error**);
  using BlockingCall = ronde_status(ronde_engine*, const ronde_request*, ronde_error**);

  Work start(AsyncCall* call, const ronde_request& request) {
    detail::ErrorSlot error;
    ronde_work* work = nullptr;
    error.throw_if(call(get(), &request, &work, &error));
    return Work(work);
  }
  void finish(BlockingCall* call, const ronde_request& request) {
    detail::ErrorSlot error;
    error.throw_if(call(get(), &request, &error));
  }

  std::unique_ptr<ronde_engine, detail::EngineDeleter> engine_;
};

// Drop-in gradient averaging for a trainer's loop: register each gradient once, call ready() as
// backward produces it (any order, any thread), wait() before the optimiser's step.
//
// Thread safety: add() before the first ready(); ready() from any thread; wait() from one thread,
// when no ready() of the step is still to come.
class GradientAverager {
 public:
  using Id = std::size_t;

  explicit GradientAverager(Engine& engine, Op op = average) : engine_(engine), op_(op) {}
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
      return engine_.allreduce(name, gradient, op_, AllreduceOptions{}, where);
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
  std::mutex mutex_;
  std::deque<std::function<Work()>> entries_;  // a deque: references stay valid while it grows
  std::vector<Work> in_flight_;
};

}  // namespace ronde
