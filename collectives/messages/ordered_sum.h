// SPDX-License-Identifier: Apache-2.0
// What a turn of the ring does to bytes: between one engine buffer and the user's tensors. No
// messages. The other algorithms between hosts use it as well: the bits come from here.
//
// The buffer holds what travels. That is the dtype of the view, or 16 bits for each of its f32
// elements: then contributions are narrowed as they are read and results widened as they are
// written, and everything in between is a ring of 16-bit numbers.
#pragma once

#include <cstddef>
#include <utility>

#include "base/numbers.h"
#include "collectives/kernels/reduce.h"
#include "collectives/kernels/window_plan.h"
#include "collectives/kernels/wire_copy.h"
#include "collectives/messages/ring_plan.h"
#include "fusion/chunks.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// Thread safety: one thread at a time; the memory behind the view is the user's.
class OrderedSum {
 public:
  // For an allgather, which has no arithmetic.
  explicit OrderedSum(fusion::FusedView view);
  // `ranks` is what an average divides by.
  OrderedSum(fusion::FusedView view, const Reduction& reduction, int ranks);

  [[nodiscard]] const fusion::FusedView& view() const { return view_; }

  // What bytes of the view take in a buffer, and the other way round.
  [[nodiscard]] base::Bytes on_wire(base::Bytes of_view) const {
    return base::Bytes(of_view.value() / element_ * wire_element_);
  }
  [[nodiscard]] base::Bytes in_view(base::Bytes of_wire) const {
    return base::Bytes(of_wire.value() * (element_ / wire_element_));
  }

  // Does `turn` for bytes `range` of its chunk. What was received is in `buffer`; what is to be
  // sent is there afterwards.
  void run(const RingTurn& turn, const fusion::ByteRange& range, std::byte* buffer) const;

  // The same one by one, for who gets the contributions as they are: lays out this rank's, raw;
  // makes a contribution the beginning of a sum; adds another to it; adds the last one; writes the
  // result to the outputs. `range` is of the view; buffers hold what travels, and do not overlap.
  void copy_in(int chunk, const fusion::ByteRange& range, std::byte* buffer) const;
  void begin_sum(const fusion::ByteRange& range, std::byte* sum) const {
    scale(kernels_.first, range, sum);
  }
  void add(const fusion::ByteRange& range, std::byte* sum, const std::byte* contribution) const {
    kernels_.combine(sum, contribution, elements_of(range).length(), scaling_);
  }
  void add_last(const fusion::ByteRange& range, std::byte* sum,
                const std::byte* contribution) const {
    kernels_.last_hop(sum, contribution, elements_of(range).length(), scaling_);
  }
  void copy_out(int chunk, const fusion::ByteRange& range, const std::byte* buffer) const;

 private:
  [[nodiscard]] WireCopy wire_copy() const { return {view_, wire_}; }
  [[nodiscard]] ElementRange elements_of(const fusion::ByteRange& range) const {
    return {range.begin / element_, range.end / element_};
  }
  void reduce(ReduceKernels::WithOwn kernel, int chunk, const fusion::ByteRange& range,
              std::byte* buffer) const;
  void reduce_narrowed(ReduceKernels::WithOwn kernel, std::byte* buffer, const std::byte* input,
                       std::int64_t elements) const;
  void scale(ReduceKernels::InPlace kernel, const fusion::ByteRange& range,
             std::byte* buffer) const;

  fusion::FusedView view_;
  base::DType wire_;
  std::int64_t element_;  // bytes
  std::int64_t wire_element_;
  ReduceKernels kernels_;
  Scaling scaling_;
};

}  // namespace ronde::collectives
