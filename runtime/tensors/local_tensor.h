// SPDX-License-Identifier: Apache-2.0
// A tensor on this rank: as a caller hands it in, and as it is in flight. It is one object from the
// call to the end of its work: the checks complete it in place.
//
// Thread safety: values; the memory of the views belongs to the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/tensor.h"
#include "collectives/device/plugin_gate.h"
#include "runtime/tensors/signature.h"
#include "runtime/tensors/step_number.h"
#include "runtime/tensors/work.h"

namespace ronde::runtime {

// What the memory of a device tensor waits for, as the caller gave it.
struct Readiness {
  void* stream = nullptr;
  void* event = nullptr;
};

// One tensor that is ready here, or one group, as the caller describes it.
struct Submission {
  std::string name;
  std::string place;  // "file:line" of the caller; may be empty
  // A group's holds what its members have in common, and their names and shapes; the check fills in
  // the shape of the whole.
  Signature signature;
  StepNumber step{};
  bool joins = false;            // it is no tensor, but this rank's join
  base::Nanoseconds deadline{};  // from the submission on; 0: RONDE_STALL_FAILURE_SECONDS
  bool will_wait = false;  // the caller's next call is wait(): do not wake the background thread
  // One, or one for each member of a group; the caller gives the addresses, the check the rest. A
  // barrier's is not looked at. The output of a block holds the rows of this rank only
  // (rows_of_rank).
  std::vector<base::TensorView> views = std::vector<base::TensorView>(1);
  // One for each view of a device tensor; may be empty where it waits for nothing.
  std::vector<Readiness> readiness;
  // An average by weights: the weight of each view.
  std::vector<double> weights;
  // The rows for each rank. Empty: shared as evenly as possible, or, where no other rank learns
  // them, exactly evenly.
  std::vector<std::int64_t> splits;
};

// A tensor in flight on this rank. Immutable once it is in the table, but for the fields that are
// marked as the agent's. A barrier has no views, and one of devices one readiness all the same.
struct LocalTensor : Submission {
  LocalTensor() { views.clear(); }
  explicit LocalTensor(Submission submission) : Submission(std::move(submission)) {}

  // What the streams and events stand for when the tensor is submitted, because later they may
  // stand for something else, or be destroyed.
  std::vector<collectives::ReadyMarkPtr> ready;
  base::Instant submitted{};
  base::Nanoseconds waited{0};  // of the submitting thread (ArrivalTime)
  // With RONDE_CHECK=finite: what is wrong with the numbers, which fails the tensor on all ranks.
  std::string not_finite;
  // A stand-in (stand_in.h) owns the memory that its views point at.
  bool stands_in = false;
  std::vector<std::byte> own_memory;
  // Only the agent touches these, and `ready` too once the tensor is in the table:
  std::shared_ptr<Work> work;  // nullptr once the tensor has ended
  bool in_batch = false;
  base::Status refused;  // what became of it alone in its batch, on every rank
  // For the timeline, where it is on: when the batch was known here, and whom it has waited for
  // (timeline/trace.h).
  base::Instant decided{};
  std::int32_t waited_for = -1;
  bool ended = false;
  // The neighbours in the table's two queues; its lock guards them.
  struct Neighbours {
    LocalTensor* previous = nullptr;
    LocalTensor* next = nullptr;
    bool listed = false;
  };
  Neighbours neighbours[2];

  // Whether the deadline is this tensor's own.
  [[nodiscard]] bool has_deadline() const { return deadline > base::Nanoseconds(0); }
  // When the deadline passes. Only a tensor with a deadline of its own has one.
  [[nodiscard]] base::Instant due() const {
    return deadline >= base::kNever - submitted ? base::kNever : submitted + deadline;
  }
  // The bytes that this rank submitted.
  [[nodiscard]] base::Bytes bytes() const {
    base::Bytes sum;
    for (const base::TensorView& view : views) sum += view.bytes();
    return sum;
  }
};
using LocalTensorPtr = std::shared_ptr<LocalTensor>;

}  // namespace ronde::runtime
