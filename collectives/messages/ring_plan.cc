// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/ring_plan.h"

#include "base/check.h"

namespace ronde::collectives {

bool receives(RingVerb verb) {
  switch (verb) {
    case RingVerb::kReceiveReduceSend:
    case RingVerb::kReceiveReduceCopySend:
    case RingVerb::kReceiveReduceCopy:
    case RingVerb::kReceiveCopySend:
    case RingVerb::kReceiveCopy:
      return true;
    case RingVerb::kSend:
    case RingVerb::kCopySend:
    case RingVerb::kReduceCopy:
    case RingVerb::kCopy:
      return false;
  }
  return false;
}

bool sends(RingVerb verb) {
  switch (verb) {
    case RingVerb::kSend:
    case RingVerb::kReceiveReduceSend:
    case RingVerb::kReceiveReduceCopySend:
    case RingVerb::kReceiveCopySend:
    case RingVerb::kCopySend:
      return true;
    case RingVerb::kReceiveReduceCopy:
    case RingVerb::kReceiveCopy:
    case RingVerb::kReduceCopy:
    case RingVerb::kCopy:
      return false;
  }
  return false;
}

RingPlan::RingPlan(RingKind kind, int rank, int size) : kind_(kind), rank_(rank), size_(size) {
  base::check(rank >= 0 && rank < size, "RingPlan: no such rank");
}

int RingPlan::turns() const { return kind_ == RingKind::kAllreduce ? 2 * (size_ - 1) + 1 : size_; }

RingTurn RingPlan::turn(int index) const {
  const bool gathers_only = kind_ == RingKind::kAllgather;
  if (size_ == 1) return {gathers_only ? RingVerb::kCopy : RingVerb::kReduceCopy, 0};

  // The turn in which a rank has its own chunk whole: a reduce-scatter ends there, an allgather
  // starts there.
  const int home = size_ - 1;
  const int t = gathers_only ? home + index : index;
  const int last = 2 * home;
  base::check(index >= 0 && index < turns(), "RingPlan: no such turn");
  const int chunk = (rank_ - 1 - t + 2 * size_) % size_;

  if (t == home) {
    if (gathers_only) return {RingVerb::kCopySend, chunk};
    const bool goes_on = kind_ == RingKind::kAllreduce;
    return {goes_on ? RingVerb::kReceiveReduceCopySend : RingVerb::kReceiveReduceCopy, chunk};
  }
  if (t == 0) return {RingVerb::kSend, chunk};
  if (t < home) return {RingVerb::kReceiveReduceSend, chunk};
  if (t < last) return {RingVerb::kReceiveCopySend, chunk};
  return {RingVerb::kReceiveCopy, chunk};
}

}  // namespace ronde::collectives
