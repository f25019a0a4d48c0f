// SPDX-License-Identifier: Apache-2.0
// The handle of an operation in flight. Included by ronde.hpp.
#pragma once

#include <ronde/ronde.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <ronde/dtype.hpp>
#include <ronde/types.hpp>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace ronde {
namespace detail {

struct WorkDeleter {
  void operator()(ronde_work* work) const { ronde_work_release(work); }
};

// Whether an exception has begun since this was made: it unwinds this thread, or it has ended what
// went on before and its handler runs. What is made in a handler and dropped there has seen none.
// Thread safety: a value; it is asked on the thread that may throw.
class ExceptionMark {
 public:
  [[nodiscard]] bool one_has_begun() const noexcept {
    if (std::uncaught_exceptions() > unwinding_) return true;
    const std::exception_ptr handled = std::current_exception();
    return handled != nullptr && handled != handled_;
  }

 private:
  int unwinding_ = std::uncaught_exceptions();
  std::exception_ptr handled_ = std::current_exception();
};

}  // namespace detail

// The handle of an operation in flight, which it owns together with a result that only the runtime
// could allocate (output()). As std::jthread does, it waits at the end of its scope, and when
// another Work is assigned to it, because the operation's memory may be freed next. If an exception
// has begun since it was made, and unwinds or is in its handler, it gives the operation a short
// grace (RONDE_UNWIND_GRACE_SECONDS) and then fails the job on all ranks, so that no rank waits for
// one that has thrown. After the handler nothing tells of the exception: a Work that outlives it is
// dropped in the handler, or by settle(true). An error that nobody waited for is thrown by
// Engine::close(). It may outlive its engine. Calls on an empty Work throw std::logic_error, but
// for valid(), detach() and settle().
//
// Thread safety: a Work belongs to one thread at a time.
class [[nodiscard("wait() for it: a Work that is dropped waits on the spot")]] Work {
 public:
  // Empty.
  Work() = default;
  // Takes over the handle.
  explicit Work(ronde_work* work) : work_(work) {}
  Work(Work&& other) noexcept = default;
  Work& operator=(Work&& other) noexcept {
    Work previous(std::move(other));
    std::swap(work_, previous.work_);
    std::swap(exceptions_, previous.exceptions_);
    std::swap(over_, previous.over_);
    return *this;
  }
  ~Work() {
    if (work_ != nullptr && !over_) settle(exceptions_.one_has_begun());
  }

  // Blocks until the operation is done, and drives the engine meanwhile; at most until the engine's
  // stall deadline. Afterwards the engine does not touch the operation's memory again. May be
  // called again. Throws Error: work codes, if the operation failed; RONDE_UNSUPPORTED where this
  // thread may not wait (ronde_work_wait).
  void wait() {
    detail::ErrorSlot error;
    finish(ronde_work_wait(get(), &error), error);
  }
  // For a tensor of a device: what is put into `stream` (cudaStream_t, or nullptr for the default
  // one) from now on begins when the operation is over; the host does not wait for that. Throws
  // Error: as wait(), if the end is known already; RONDE_INVALID_ARGUMENT for a tensor in host
  // memory, and for a stream that is being captured or is another device's.
  void wait(void* stream) {
    detail::ErrorSlot error;
    finish(ronde_work_wait_stream(get(), stream, &error), error);
  }
  // Waits as wait() does, but at most `timeout`; returns whether the operation is done. Throws
  // Error: as wait(), if it is done.
  template <typename Rep, typename Period>
  [[nodiscard]] bool wait_for(std::chrono::duration<Rep, Period> timeout) {
    using Nanoseconds = std::chrono::duration<double, std::nano>;
    constexpr double kLongest = 1e18;  // some thirty years: beyond that a count of int64 overflows
    const double nanoseconds = std::min(Nanoseconds(timeout).count(), kLongest);
    detail::ErrorSlot error;
    std::int32_t done = 0;
    const ronde_status status =
        ronde_work_wait_for(get(), static_cast<std::int64_t>(nanoseconds), &done, &error);
    over_ = done != 0 || over_;
    error.throw_if(status);
    return done != 0;
  }
  // Returns whether the operation is done, completed or failed. Never blocks. In a caller-driven
  // engine (ronde_engine_options) the thread that opened it makes progress here, one step for each
  // call, so that `while (!work.poll()) compute();` ends there too.
  [[nodiscard]] bool poll() const { return ronde_work_poll(get()) != 0; }

  // The result of an allgather or an all-to-all that is done: its elements, in memory that this
  // Work owns. The result of a device is memory of the device, and known after wait(stream) too.
  // Throws Error: RONDE_INVALID_ARGUMENT if it is not done or has no such result, work codes if it
  // failed; std::logic_error if T is not the type that was sent.
  template <typename T>
  [[nodiscard]] std::span<const T> output() const {
    const Output result = find_output();
    if (result.dtype != detail::dtype_of<T>()) {
      throw std::logic_error("ronde::Work::output: the elements have another type");
    }
    std::size_t count = 1;
    for (const std::int64_t dimension : result.shape) count *= static_cast<std::size_t>(dimension);
    return {static_cast<const T*>(result.data), count};
  }
  // The dimensions of output(), the first of which only the runtime knows. Throws as output() does.
  [[nodiscard]] std::vector<std::int64_t> output_shape() const {
    const Output result = find_output();
    return {result.shape.begin(), result.shape.end()};
  }

  // The elements (rows, for requests of the C ABI) that an all-to-all that is done received from
  // each rank, by rank. Throws as output() does, also for other operations.
  [[nodiscard]] std::vector<std::int64_t> received_splits() const {
    const std::int64_t* splits = nullptr;
    std::int32_t count = 0;
    detail::ErrorSlot error;
    error.throw_if(ronde_work_received_splits(get(), &splits, &count, &error));
    return {splits, splits + count};
  }

  // The rank that has sent the message of a receive that is done. Throws as output() does, also for
  // other operations.
  [[nodiscard]] int source() const {
    std::int32_t source = 0;
    detail::ErrorSlot error;
    error.throw_if(ronde_work_source(get(), &source, &error));
    return source;
  }

  // Whether there is an operation: false when default-constructed or moved from.
  [[nodiscard]] bool valid() const noexcept { return work_ != nullptr; }

  // Lets the operation go on by itself: its memory must stay valid until it is done, which nobody
  // can tell any more. Afterwards this is empty.
  void detach() noexcept { work_.reset(); }
  // What the destructor does, for those who have one of their own: waits until the engine does not
  // touch the operation's memory any more, whatever the result. Afterwards this is empty.
  // unwinding: an exception has begun since the operation was; only a short grace is left.
  void settle(bool unwinding) noexcept {
    ronde_work_settle(work_.release(), unwinding ? RONDE_GRACE_UNWIND : RONDE_GRACE_STALL);
  }

 private:
  void finish(ronde_status status, const detail::ErrorSlot& error) {
    over_ = status == RONDE_OK || poll();
    error.throw_if(status);
  }
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
  detail::ExceptionMark exceptions_;  // of when the operation began
  // The memory is the caller's again, or will be in a stream that waits.
  bool over_ = false;
};

namespace detail {

// Calls a function of the C ABI that submits.
template <typename Call, typename... Arguments>
Work start(Call* call, ronde_engine* engine, const Arguments&... arguments) {
  ErrorSlot error;
  ronde_work* work = nullptr;
  error.throw_if(call(engine, arguments..., &work, &error));
  return Work(work);
}

}  // namespace detail
}  // namespace ronde
