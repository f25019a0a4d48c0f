// SPDX-License-Identifier: Apache-2.0
// What is measured: Ronde, or something that Ronde is compared with. All work on the same memory.
#pragma once

#include <cstddef>
#include <memory>
#include <ronde/ronde.hpp>
#include <string>
#include <vector>

#include "examples/perf/contenders/device.h"
#include "examples/perf/options/models.h"
#include "examples/perf/options/types.h"

namespace ronde::perf {

// A tensor of a model within the buffer.
struct Place {
  std::string name;
  std::size_t first = 0;  // element
  std::size_t elements = 0;
};

// One call: the operation and its memory.
struct Task {
  Case shape;
  std::byte* input = nullptr;
  std::byte* output = nullptr;   // the input's place in it where shape.in_place
  std::byte* scratch = nullptr;  // as large as the input; no operation uses it
  Device* device = nullptr;      // all of this is its memory
  std::vector<Place> tensors;    // a model's, for one by one; otherwise empty
};

// Thread safety: belongs to one thread.
class Contender {
 public:
  Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;
  virtual ~Contender() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  // Names, in a few words, what it lacks for this case; empty: nothing.
  [[nodiscard]] virtual std::string lacks(const Case& shape) const = 0;
  // Whether the result is the rank's own input, without the other ranks'.
  [[nodiscard]] virtual bool copies() const { return false; }
  // Called once before run() is called any number of times.
  virtual void prepare(const Task& task) = 0;
  // Does the work that is timed.
  virtual void run() = 0;
  // The result of the last run.
  [[nodiscard]] virtual std::byte* result() = 0;
  // Is called after the result has been checked.
  virtual void finish() {}
};

// Ronde by its blocking calls, from submit to the end of wait; with memory of a device, from submit
// until its stream may go on. prepared: by operations that are agreed once (ronde_prepare).
[[nodiscard]] std::unique_ptr<Contender> make_ronde(Engine& engine, std::string name,
                                                    bool prepared = false);
// Ronde with one tensor after the other, as gradients are submitted.
[[nodiscard]] std::unique_ptr<Contender> make_ronde_one_by_one(Engine& engine);
// Every rank copies its input with memcpy (on a device, its own copy), at the same time: the speed
// of the memory itself.
[[nodiscard]] std::unique_ptr<Contender> make_memcpy();
// Bare flags: what the cores of one host take to show each other a flag and small vectors, with no
// runtime around it. No allreduce over shared memory can be much faster. Collective. Throws
// UsageError over several hosts.
[[nodiscard]] std::unique_ptr<Contender> make_floor(Engine& engine);
// The line between hosts: what TCP alone takes for the bytes that every host must send and receive
// in an allreduce, 2 (n - 1) / n of the vector over n hosts. No allreduce can be faster. The first
// rank of each host sends to that of the next host and receives from that of the one before, at the
// same time, over one connection each; the other ranks do nothing. Collective. Throws UsageError on
// one host, and on every rank if a host cannot reach the next.
[[nodiscard]] std::unique_ptr<Contender> make_line(Engine& engine);

}  // namespace ronde::perf
