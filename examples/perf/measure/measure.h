// SPDX-License-Identifier: Apache-2.0
// Takes samples: all contenders in turns, in one program, on the same memory, so that a change of
// the machine's speed affects all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ronde/ronde.hpp>
#include <span>
#include <string>
#include <vector>

#include "examples/perf/contenders/contender.h"
#include "examples/perf/contenders/device.h"
#include "examples/perf/measure/pattern.h"
#include "examples/perf/measure/start_line.h"
#include "examples/perf/measure/statistics.h"
#include "examples/perf/measure/watchdog.h"
#include "examples/perf/options/options.h"

namespace ronde::perf {

// Two stretches of memory, touched by this rank: one that is written before every iteration, and
// one for results beside it.
//
// Thread safety: as for the device.
class Buffers {
 public:
  // Throws std::runtime_error when there is not enough memory.
  Buffers(Device& device, const Engine& engine, std::size_t bytes);

  [[nodiscard]] std::byte* first() const { return first_; }
  [[nodiscard]] std::byte* second() const { return second_; }
  [[nodiscard]] Device& device() const { return device_; }

 private:
  Device& device_;
  std::unique_ptr<Memory> memory_;
  std::byte* first_ = nullptr;
  std::byte* second_ = nullptr;
};

// One contender and its task.
struct Entry {
  Contender* contender = nullptr;
  Task task;
  const Pattern* pattern = nullptr;
};

// Thread safety: belongs to one thread of each rank. Every call is collective.
class Measurement {
 public:
  Measurement(Engine& engine, const Options& options, Watchdog& watchdog);

  // Takes --repetitions samples of each entry. The entries have one key.
  [[nodiscard]] std::vector<Sample> measure(const Key& key, std::span<const Entry> entries);

 private:
  Sample take(const Key& key, const Entry& entry, std::uint64_t repetition);
  [[nodiscard]] std::uint64_t iterate(const Entry& entry, std::uint64_t warm_up,
                                      std::span<double> times);
  [[nodiscard]] std::uint64_t count_wrong(const Entry& entry, std::uint64_t iteration) const;
  std::optional<double> round_trip();

  Engine& engine_;
  const Options& options_;
  Watchdog& watchdog_;
  StartLine start_line_;
  const int rank_;
  std::uint64_t iteration_ =
      0;  // counts all iterations, so that no two in a row have the same values
  std::optional<double> last_round_trip_;
};

// The time in nanoseconds that a cache line takes from one core to another and back: the median of
// several tries between two of the cores this process may use; nothing if it may use only one. On a
// virtual machine it can change fourfold within seconds, and all times change with it. Takes about
// half a millisecond; other ranks should be asleep meanwhile.
[[nodiscard]] std::optional<double> core_to_core_round_trip();

}  // namespace ronde::perf
