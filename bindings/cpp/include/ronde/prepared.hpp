// SPDX-License-Identifier: Apache-2.0
// An operation that is agreed once and run again and again. Included by ronde.hpp.
#pragma once

#include <ronde/ronde.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ronde/dtype.hpp>
#include <ronde/types.hpp>
#include <span>
#include <stdexcept>
#include <utility>

namespace ronde {
namespace detail {

struct PreparedDeleter {
  void operator()(ronde_prepared* prepared) const { ronde_prepared_release(prepared); }
};

}  // namespace detail

// What Engine::prepare_allreduce() and its like return ("prepared operations" in ronde.h).
//
//   std::vector<float> loss(1);
//   ronde::Prepared sum = engine.prepare_allreduce("loss", loss, ronde::sum);
//   for (...) {
//     loss[0] = ...;
//     sum.run();  // on every rank, equally often
//   }
//
// Ownership: the memory of the spans stays the caller's, and must outlive this object. It may
// outlive its engine, whose end makes all calls throw (RONDE_CLOSED).
//
// Errors: all calls throw Error, with the work codes of ronde.h; RONDE_INVALID_ARGUMENT for a
// wait() without start(), and the other way round; std::logic_error where it is empty.
//
// Thread safety: one thread at a time.
class Prepared {
 public:
  Prepared() = default;
  // Takes the handle of the C ABI.
  explicit Prepared(ronde_prepared* prepared, ronde_dtype dtype)
      : prepared_(prepared), dtype_(dtype) {}

  // Reads the input, and returns at once; but the root of a broadcast may wait until all ranks have
  // read the call before the last.
  void start() { call(ronde_prepared_start); }
  // Waits for the other ranks, and writes the output.
  void wait() { call(ronde_prepared_wait); }
  // Both.
  void run() { call(ronde_prepared_run); }

  // The result of an allgather, until the next start(). Throws std::logic_error if T is not the
  // type that was prepared.
  template <typename T>
  [[nodiscard]] std::span<const T> output() const {
    if (dtype_ != detail::dtype_of<T>()) {
      throw std::logic_error("ronde::Prepared::output: the elements have another type");
    }
    const void* data = nullptr;
    std::int64_t rows = 0;
    detail::ErrorSlot error;
    error.throw_if(ronde_prepared_output(get(), &data, &rows, &error));
    return {static_cast<const T*>(data), static_cast<std::size_t>(rows)};
  }

 private:
  [[nodiscard]] ronde_prepared* get() const {
    if (prepared_ == nullptr) throw std::logic_error("ronde::Prepared is empty");
    return prepared_.get();
  }
  void call(ronde_status (*function)(ronde_prepared*, ronde_error**)) {
    detail::ErrorSlot error;
    error.throw_if(function(get(), &error));
  }

  std::unique_ptr<ronde_prepared, detail::PreparedDeleter> prepared_;
  ronde_dtype dtype_ = RONDE_F32;
};

}  // namespace ronde
