// SPDX-License-Identifier: Apache-2.0
// What a turn of the ring does to bytes: between one engine buffer and the user's tensors. No
// messages.
#pragma once

#include <cstddef>
#include <utility>

#include "collectives/reduce_kernels.h"
#include "collectives/ring_plan.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// Thread safety: one thread at a time; the memory behind the view is the user's.
class RingArithmetic {
 public:
  // For an allgather, which has no arithmetic.
  explicit RingArithmetic(fusion::FusedView view) : view_(std::move(view)) {}
  RingArithmetic(fusion::FusedView view, const Reduction& reduction, int ranks);

  [[nodiscard]] const fusion::FusedView& view() const { return view_; }

  // Does `turn` for bytes `range` of its chunk. What was received is in `buffer`; what is to be
  // sent is there afterwards.
  void run(const RingTurn& turn, const fusion::ByteRange& range, std::byte* buffer) const;

 private:
  void copy_in(int chunk, const fusion::ByteRange& range, std::byte* buffer) const;
  void copy_out(int chunk, const fusion::ByteRange& range, const std::byte* buffer) const;
  void reduce(ReduceKernels::WithOwn kernel, int chunk, const fusion::ByteRange& range,
              std::byte* buffer) const;
  void scale(ReduceKernels::InPlace kernel, const fusion::ByteRange& range,
             std::byte* buffer) const;

  fusion::FusedView view_;
  ReduceKernels kernels_;
  Scaling scaling_;
};

}  // namespace ronde::collectives
