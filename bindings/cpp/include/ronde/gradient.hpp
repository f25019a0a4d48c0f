// SPDX-License-Identifier: Apache-2.0
// A gradient as GradientAverager knows it, and the texts about it. Included by averager.hpp.
#pragma once

#include <ronde/ronde.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ronde/dtype.hpp>
#include <ronde/requests.hpp>
#include <ronde/types.hpp>
#include <ronde/work.hpp>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ronde {
namespace detail {

// Where a gradient lies. The memory is the caller's, or that of a Gradient's zeros.
// Thread safety: a value.
struct GradientMemory {
  template <typename T, std::size_t N>
  explicit GradientMemory(std::span<T, N> elements)
      : data(elements.data()),
        count(elements.size()),
        bytes(elements.size_bytes()),
        dtype(dtype_of<T>()) {}
  template <typename T>
  explicit GradientMemory(const DeviceSpan<T>& elements) : GradientMemory(elements.data) {
    on_device = true;
    device = elements.device;
    stream = elements.stream;
    ready_event = elements.ready_event;
  }

  [[nodiscard]] bool overlaps(const GradientMemory& other) const {
    const std::less<const void*> below;
    return bytes > 0 && other.bytes > 0 && below(data, other.end()) && below(other.data, end());
  }
  [[nodiscard]] const void* end() const { return static_cast<const std::byte*>(data) + bytes; }
  // The same elements at another place, in host memory.
  [[nodiscard]] GradientMemory on_host(void* elements) const {
    GradientMemory other = *this;
    other.data = elements;
    other.on_device = false;
    other.device = RONDE_DEVICE_CPU;
    other.stream = nullptr;
    other.ready_event = nullptr;
    return other;
  }
  [[nodiscard]] std::string text() const {
    static constexpr const char* kNames[] = {"u8",  "i8",  "u16",  "i16", "u32", "i32", "u64",
                                             "i64", "f16", "bf16", "f32", "f64", "bool"};
    return std::to_string(count) + (count == 1 ? " element of " : " elements of ") + kNames[dtype];
  }

  void* data;
  std::size_t count;
  std::size_t bytes;
  ronde_dtype dtype;
  bool on_device = false;
  std::int32_t device = RONDE_DEVICE_CPU;
  void* stream = nullptr;
  void* ready_event = nullptr;
};

inline std::string place_of(const std::source_location& where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line());
}

// Thread safety: none of its own; the averager's lock guards what changes.
struct Gradient {
  Gradient(std::string its_name, const GradientMemory& memory, const std::source_location& place)
      : name(std::move(its_name)), where(place), registered(memory), now(memory) {}

  [[nodiscard]] std::string registered_at() const {
    return "'" + name + "' (registered at " + place_of(where) + ")";
  }

  // Refuses, before anything is registered, what could not be told from this gradient later.
  void refuse_twin(const Gradient& added) const {
    const std::string place = place_of(added.where);
    if (added.name == name) {
      throw Error(RONDE_DUPLICATE_NAME,
                  "gradient " + registered_at() + " is registered again at " + place +
                      ": give each gradient a name of its own",
                  place, -1);
    }
    if (!added.registered.overlaps(registered)) return;
    throw Error(RONDE_INVALID_ARGUMENT,
                "gradient '" + added.name + "' at " + place + " overlaps in memory with " +
                    registered_at() +
                    ": both would be averaged at once, so register tied "
                    "gradients once",
                place, -1);
  }

  // Only this step's average goes there; a later step may find the memory gone.
  void move_to(const GradientMemory& memory, const std::source_location& place) {
    if (memory.count != registered.count || memory.dtype != registered.dtype) {
      throw Error(RONDE_INVALID_ARGUMENT,
                  "gradient " + registered_at() + " has " + registered.text() +
                      ", but ready() was given " + memory.text() + " at " + place_of(place) +
                      ": both stay as they were registered",
                  place_of(place), -1);
    }
    now = memory;
    moved = true;
  }
  void stay() {
    now = registered;
    moved = false;
  }
  // The step ends without a ready(). Nobody says that the memory of add() is still there if the
  // last ready() gave another.
  void leave_out() {
    if (!moved) return stay();
    zeros.assign(registered.bytes, std::byte{0});
    now = registered.on_host(zeros.data());
  }

  [[nodiscard]] Work start(ronde_engine* engine, Op op, const AllreduceOptions& options) const {
    const auto length = static_cast<std::int64_t>(now.count);
    ronde_request request = named(name, where);
    request.shape = &length;
    request.dimensions = 1;
    request.dtype = now.dtype;
    request.output = now.data;
    request.device = now.device;
    request.stream = now.stream;
    request.ready_event = now.ready_event;
    set_reduction(request, op, options);
    ErrorSlot error;
    ronde_work* work = nullptr;
    error.throw_if(ronde_allreduce_async(engine, &request, &work, &error));
    return Work(work);
  }

  // Has `stream` wait for what the host has left on its way.
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

  std::string name;
  std::source_location where;  // of add()
  GradientMemory registered;   // what add() was given
  GradientMemory now;          // what this step averages
  bool ready = false;          // in this step
  bool moved = false;          // the last ready() gave memory of its own
  std::vector<std::byte> zeros;
  Work left{};  // what the host has not waited for, though the step is over
};

}  // namespace detail
}  // namespace ronde
