// SPDX-License-Identifier: Apache-2.0
// The loop that takes the times, and the check of every result.
#include "examples/perf/measure/measure.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <stdexcept>
#include <thread>

namespace ronde::perf {

namespace {

constexpr std::size_t kCacheLine = 64;
// The second stretch begins elsewhere in a page: a processor takes a load that follows a store with
// the same lower 12 bits of the address for dependent on it.
constexpr std::size_t kStagger = 17 * kCacheLine;

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::byte* align(std::byte* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return memory + (round_up(address, kCacheLine) - address);
}

}  // namespace

Buffers::Buffers(Device& device, const Engine& engine, std::size_t bytes) : device_(device) {
  constexpr std::size_t kPage = 4096;
  const std::size_t each = round_up(bytes + kCacheLine, kPage);
  const std::size_t both = 2 * each + kStagger + kCacheLine;
  try {
    memory_ = device.allocate(engine, both);
  } catch (const std::bad_alloc&) {
    throw std::runtime_error("no memory for two buffers of " + std::to_string(bytes) +
                             " bytes: use a smaller --maxbytes or --model");
  }
  first_ = align(memory_->data());
  second_ = first_ + each + kStagger;
}

Measurement::Measurement(Engine& engine, const Options& options, Watchdog& watchdog)
    : engine_(engine),
      options_(options),
      watchdog_(watchdog),
      start_line_(engine),
      rank_(engine.rank()),
      last_round_trip_(round_trip()) {}

std::vector<Sample> Measurement::measure(const Key& key, std::span<const Entry> entries) {
  std::vector<Sample> samples;
  samples.reserve(entries.size() * options_.repetitions);
  for (std::uint64_t repetition = 0; repetition < options_.repetitions; ++repetition) {
    for (std::size_t turn = 0; turn < entries.size(); ++turn) {
      // Each repetition begins with another contender: one may profit from the one that runs before
      // it.
      const Entry& entry = entries[(turn + repetition) % entries.size()];
      watchdog_.begin(key.operation + key.model + " of " + std::to_string(key.bytes) +
                      " bytes by " + entry.contender->name());
      samples.push_back(take(key, entry, repetition));
      watchdog_.end();
    }
  }
  return samples;
}

Sample Measurement::take(const Key& key, const Entry& entry, std::uint64_t repetition) {
  Sample sample;
  sample.key = key;
  sample.contender = entry.contender->name();
  sample.tensors = std::max<std::uint64_t>(1, entry.task.tensors.size());
  sample.repetition = repetition;
  sample.c2c_before_ns = last_round_trip_;

  std::vector<double> times(iterations_for(options_, key.bytes));
  entry.contender->prepare(entry.task);
  std::uint64_t wrong = iterate(entry, warm_up_for(options_, key.bytes), times);

  // The time of an operation is that of the rank that got its result last.
  engine_.allreduce_blocking("perf/times/" + std::to_string(times.size()), std::span(times),
                             ronde::max);
  engine_.allreduce_blocking("perf/wrong", std::span(&wrong, 1), ronde::sum);
  add_times(sample, times, bus_factor(entry.task.shape.operation, entry.task.shape.ranks));
  sample.wrong = wrong;
  last_round_trip_ = round_trip();
  sample.c2c_after_ns = last_round_trip_;
  return sample;
}

std::uint64_t Measurement::iterate(const Entry& entry, std::uint64_t warm_up,
                                   std::span<double> times) {
  const Task& task = entry.task;
  const Pattern& pattern = *entry.pattern;
  Device& device = *task.device;
  const std::size_t input_bytes = task.shape.input_elements() * task.shape.dtype->size;
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < warm_up + times.size(); ++i) {
    ++iteration_;
    pattern.write(pattern.input(task.shape, iteration_), device.draft(task.input, input_bytes));
    device.commit(task.input, input_bytes);
    start_line_.wait();
    device.begin();
    entry.contender->run();
    const double microseconds = device.end();
    if (i >= warm_up) times[i - warm_up] = microseconds;
    if (options_.check) wrong += count_wrong(entry, iteration_);
    entry.contender->finish();
  }
  return wrong;
}

std::uint64_t Measurement::count_wrong(const Entry& entry, std::uint64_t iteration) const {
  const Task& task = entry.task;
  const Case& shape = task.shape;
  const Pattern& pattern = *entry.pattern;
  const std::size_t size = shape.dtype->size;
  if (shape.moves_nothing()) return 0;
  std::vector<Run> runs = pattern.expected(shape, iteration);
  if (entry.contender->copies()) runs = {pattern.input(shape, iteration)};
  std::size_t elements = 0;
  for (const Run& run : runs) elements += run.elements;
  std::byte* const result = task.device->look(entry.contender->result(), elements * size).data();
  if (options_.corrupt) result[0] ^= std::byte{0x55};

  std::uint64_t wrong = 0;
  std::size_t position = 0;
  for (const Run& run : runs) {
    if (!task.tensors.empty() &&
        !entry.contender
             ->copies()) {  // in a model only the tensors count, not what lies between them
      for (const Place& tensor : task.tensors) {
        wrong += pattern.count_wrong({run.table, run.first + tensor.first, tensor.elements},
                                     {result + tensor.first * size, tensor.elements * size});
      }
      continue;
    }
    wrong += pattern.count_wrong(run, {result + position * size, run.elements * size});
    position += run.elements;
  }
  return wrong;
}

std::optional<double> Measurement::round_trip() {
  std::optional<double> nanoseconds;
  if (rank_ == 0) {
    nanoseconds = core_to_core_round_trip();
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // leave the cores to rank 0
  }
  engine_.barrier_blocking("perf/round-trip");
  return nanoseconds;
}

}  // namespace ronde::perf
