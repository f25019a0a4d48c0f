// SPDX-License-Identifier: Apache-2.0
// A gradient as GradientAverager knows it, and the texts about it. Included by averager.hpp.
#pragma once

#include <ronde/ronde.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
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
struct GradientMemory : Memory {
  using Memory::Memory;

  [[nodiscard]] bool overlaps(const GradientMemory& other) const {
    const std::less<const void*> below;
    return bytes > 0 && other.bytes > 0 && below(data, other.end()) && below(other.data, end());
  }
  [[nodiscard]] const void* end() const { return static_cast<const std::byte*>(data) + bytes; }
  // The same elements at another place, in host memory.
  [[nodiscard]] GradientMemory on_host(void* elements) const {
    GradientMemory other = *this;
    other.data = elements;
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
};

inline std::string place_of(const std::source_location& where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line());
}

// The step that an averager is in: it counts its steps, or the program has given a number, on which
// all ranks must agree then. Thread safety: a value.
struct Step {
  std::int64_t number = 0;
  bool agrees = false;
};

inline void set_step(ronde_request& request, const Step& step) {
  request.step = step.number;
  if (step.agrees) request.flags |= RONDE_FLAG_STEP_AGREES;
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

  [[nodiscard]] Work start(ronde_engine* engine, Op op, const AllreduceOptions& options,
                           const Step& step) const {
    Vector vector(name, now, where);
    vector.reduced(op, options);
    set_step(vector.request, step);
    return detail::start(ronde_allreduce_async, engine, &vector.request);
  }

  // Submits what takes the place of a gradient that this rank cannot give in a step: the gradient
  // fails on every rank that gives it, and what this rank submits later meets no older step.
  [[nodiscard]] Work stand_in(ronde_engine* engine, const Step& step) const {
    const std::string file = where.file_name();
    const std::string place =
        "the end of a step that it gave up, " + file.substr(file.rfind('/') + 1);
    ronde_request request = named(name, where);
    request.file = place.c_str();
    set_step(request, step);
    return detail::start(ronde_barrier_async, engine, &request);
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
  bool taken = false;          // in this step, to be submitted; false again where that failed
  bool moved = false;          // the last ready() gave memory of its own
  std::vector<std::byte> zeros;
  Work left{};  // what the host has not waited for, though the step is over
};

inline Error unknown_gradient(std::size_t id, std::size_t count) {
  std::string text = "ready(" + std::to_string(id) + "): add() has returned ";
  if (count == 0) return Error(RONDE_INVALID_ARGUMENT, text + "none yet", "", -1);
  text += "the ids of " + std::to_string(count) + (count == 1 ? " gradient" : " gradients");
  return Error(RONDE_INVALID_ARGUMENT, text + ", which count from 0", "", -1);
}

// Names a few of the missing, since there may be thousands.
inline std::exception_ptr missing_error(const std::deque<Gradient>& all,
                                        const std::vector<std::size_t>& missing, int rank) {
  constexpr std::size_t kNamed = 8;
  std::string names;
  for (std::size_t i = 0; i < missing.size() && i < kNamed; ++i) {
    names += (i == 0 ? "" : ", ") + all[missing[i]].registered_at();
  }
  if (missing.size() > kNamed) {
    names += " and " + std::to_string(missing.size() - kNamed) + " more";
  }
  return std::make_exception_ptr(
      Error(RONDE_INVALID_ARGUMENT,
            std::to_string(missing.size()) + " of " + std::to_string(all.size()) +
                " gradients were not made ready in this step on rank " + std::to_string(rank) +
                ", and were averaged as they stood: " + names +
                ": call ready() for each, or skip() if this rank has nothing more to give",
            place_of(all[missing.front()].where), rank));
}

// Calls `call`; keeps what it throws unless an earlier error is kept.
template <typename Call>
void keep_error(std::exception_ptr& first, const Call& call) {
  try {
    call();
  } catch (...) {
    if (!first) first = std::current_exception();
  }
}

// Whether a submission that failed may succeed at another time. Otherwise the engine is over, or no
// engine takes such a name.
inline bool may_be_submitted_later(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known.status() == RONDE_DUPLICATE_NAME || known.status() == RONDE_OUT_OF_MEMORY;
  } catch (...) {
    return true;
  }
}

}  // namespace detail
}  // namespace ronde
