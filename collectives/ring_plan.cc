// SPDX-License-Identifier: Apache-2.0
#include "collectives/ring_plan.h"

#include <algorithm>

namespace ronde::collectives {

bool receives(RingVerb verb) {
  switch (verb) {
    case RingVerb::kReceiveReduceSend:
    case RingVerb::kReceiveReduceCopySend:
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
  const bool allreduce = kind_ == RingKind::kAllreduce;
  if (size_ == 1) return {allreduce ? RingVerb::kReduceCopy : RingVerb::kCopy, 0};

  // The turn in which a rank has its own chunk whole; an allgather starts there.
  const int home = size_ - 1;
  const int t = allreduce ? index : home + index;
  const int last = 2 * home;
  base::check(index >= 0 && t <= last, "RingPlan: no such turn");
  const int chunk = (rank_ - 1 - t + 2 * size_) % size_;

  if (t == home) return {allreduce ? RingVerb::kReceiveReduceCopySend : RingVerb::kCopySend, chunk};
  if (t == 0) return {RingVerb::kSend, chunk};
  if (t < home) return {RingVerb::kReceiveReduceSend, chunk};
  if (t < last) return {RingVerb::kReceiveCopySend, chunk};
  return {RingVerb::kReceiveCopy, chunk};
}

fusion::ByteRange segment_of(base::Bytes bytes, base::Bytes segment, std::int64_t index) {
  // Compared by division: index * segment may be far beyond what fits.
  if (index >= base::ceil_div(bytes.value(), segment.value()))
    return {bytes.value(), bytes.value()};
  const std::int64_t begin = index * segment.value();
  return {begin, begin + std::min(segment.value(), bytes.value() - begin)};
}

base::Bytes segment_length(base::Bytes wanted, base::Bytes largest) {
  const std::int64_t lines =
      std::max<std::int64_t>(1, std::min(base::ceil_div(wanted.value(), fusion::kLineBytes),
                                         base::ceil_div(largest.value(), fusion::kLineBytes)));
  return base::Bytes(lines * fusion::kLineBytes);
}

}  // namespace ronde::collectives
