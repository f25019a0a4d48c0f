// SPDX-License-Identifier: Apache-2.0
// What a timeline records, and its lines in Chrome's trace format. Pure.
//
// A rank is a process of the trace. Each tensor has a row (a thread of the trace) with its phases
// one after another; rows of the rank have its batches and their phases; each thread that marks
// has a row for its marks. Messages, of which many may be on their way, are asynchronous slices.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>

#include "base/clock.h"
#include "base/operations.h"
#include "collectives/transport/batch_times.h"
#include "runtime/timeline/clock_offset.h"

namespace ronde::runtime {

// Whom a tensor has waited for, where that is not a rank.
inline constexpr std::int32_t kWaitedForUnknown = -1;
inline constexpr std::int32_t kWaitedForOtherHosts = -2;

// A tensor that has ended in a batch. A group is one. In a process set the name has that of the set
// before it: "pair/fc1".
struct TracedTensor {
  std::string name;
  base::Operation operation{};
  base::Instant submitted{};
  base::Instant decided{};  // when this rank was told of its batch
  base::Instant began{};    // ... and began it
  base::Instant ended{};
  std::int32_t waited_for = kWaitedForUnknown;  // the last rank that has submitted it
  std::uint64_t batch = 0;
  std::int64_t bytes = 0;
  bool ok = true;
};

struct TracedBatch {
  std::string set;  // of this process set; empty: of the job
  std::uint64_t sequence = 0;
  std::int64_t tensors = 0;
  base::Instant began{};
  base::Instant ended{};
  std::array<collectives::PhaseTime, collectives::kBatchPhases> phases{};
};

enum class MarkKind : std::uint8_t { kInstant, kBegin, kEnd };

// A mark of the program.
struct TracedMark {
  MarkKind kind = MarkKind::kInstant;
  std::string name;
  std::int32_t thread = 0;
  base::Instant at{};
};

// A message between two ranks, from the call on.
struct TracedMessage {
  std::string set;
  bool sends = false;
  std::int32_t peer = 0;  // of the job; -1: nobody has sent it
  std::int64_t tag = 0;
  std::int64_t bytes = 0;
  base::Instant began{};
  base::Instant ended{};
  bool ok = true;
};

// Events that were lost since the last of these.
struct TracedLoss {
  std::uint64_t events = 0;
  base::Instant at{};
};

// From now on this is added to every time.
struct TracedClocks {
  ClockOffset clocks;
  base::Instant at{};
};

using Traced =
    std::variant<TracedTensor, TracedBatch, TracedMark, TracedLoss, TracedMessage, TracedClocks>;

// Text in quotes, as JSON has it; what is no UTF-8 is replaced.
[[nodiscard]] std::string json_text(std::string_view text);

// This is the inside of a JSON object: its braces are left to the writer.
[[nodiscard]] std::string arguments_of(const ClockOffset& clocks);

// Writes the events of one rank. Thread safety: one thread at a time.
class TraceLines {
 public:
  // offset: is added to every time, until the clocks are compared again. cycles: a mark
  // "CYCLE_START" where a batch begins.
  TraceLines(std::int32_t rank, base::Nanoseconds offset, bool cycles)
      : rank_(rank), offset_(offset), cycles_(cycles) {}

  // Appends the lines of an event to `text`, before them that of a row that is new.
  void append(std::string& text, const Traced& traced);
  // Appends a line about this rank: {"name": kind, "ph": "M", "args": arguments}.
  void append_about(std::string& text, std::string_view kind, std::string_view arguments) const;

 private:
  struct Span;
  // How the lines of a tensor begin.
  struct TensorRow {
    std::string waits;  // up to the name of whom it waits for
    std::string queues;
    std::string moves;  // up to the number of the batch
  };
  void add(std::string& text, const TracedTensor& tensor);
  void add(std::string& text, const TracedBatch& batch);
  void add(std::string& text, const TracedMark& mark);
  void add(std::string& text, const TracedLoss& loss);
  void add(std::string& text, const TracedMessage& message);
  void add(std::string& text, const TracedClocks& compared);
  const TensorRow& tensor_row(std::string& text, const TracedTensor& tensor);
  void append_span(std::string& text, base::Instant begin, base::Instant end) const;
  void add_span(std::string& text, const Span& span) const;
  void begin_event(std::string& text, char kind, std::int64_t row, std::string_view name,
                   base::Instant at) const;
  std::int64_t row_of(std::string& text, const std::string& name);
  void name_row(std::string& text, std::int64_t row, std::string_view name);

  const std::int32_t rank_;
  base::Nanoseconds offset_;
  const bool cycles_;
  std::unordered_map<std::string, std::int64_t> rows_;
  std::array<std::unordered_map<std::string, TensorRow>, base::kOperations.size()> tensor_rows_;
  std::int64_t messages_ = 0;
  TensorRow unnamed_;  // of the last tensor that found no room there
};

}  // namespace ronde::runtime
