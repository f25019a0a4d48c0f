// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a turn of the ring, between one engine buffer and the user's tensors. It sends
// no messages. All algorithms between hosts use it, so that they give the same bits.
//
// The buffer holds what travels: elements of the view's dtype, or 16 bits for each of its f32
// elements. Then contributions are narrowed as they are read and results widened as they are
// written, and the arithmetic in between is that of 16-bit numbers.
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

// It owns no memory: the buffers are the caller's, and the memory behind the view is the user's.
// Thread safety: one thread at a time.
class OrderedSum {
 public:
  // This one is for an allgather, which has no arithmetic.
  explicit OrderedSum(fusion::FusedView view);
  // `ranks` is what an average divides by.
  OrderedSum(fusion::FusedView view, const Reduction& reduction, int ranks);

  [[nodiscard]] const fusion::FusedView& view() const { return view_; }

  // Convert between bytes of the view and the bytes that they take in a buffer.
  [[nodiscard]] base::Bytes on_wire(base::Bytes of_view) const {
    return base::Bytes(of_view.value() / element_ * wire_element_);
  }
  [[nodiscard]] base::Bytes in_view(base::Bytes of_wire) const {
    return base::Bytes(of_wire.value() * (element_ / wire_element_));
  }

  // Does `turn` for bytes `range` of its chunk. `buffer` holds what was received, and afterwards
  // what is to be sent.
  void run(const RingTurn& turn, const fusion::ByteRange& range, std::byte* buffer) const;

  // The parts of run(), for algorithms whose ranks receive contributions. copy_in() stores this
  // rank's contribution, prescaled; begin_sum() makes a contribution the beginning of a sum; add()
  // adds another one, and add_last() the last one; copy_out() writes the result to the outputs.
  // `range` is in bytes of the view; buffers hold what travels, and must not overlap.
  void copy_in(int chunk, const fusion::ByteRange& range, std::byte* buffer) const;
  void begin_sum(const fusion::ByteRange& range, std::byte* sum) const {
    kernels_.first(sum, elements_of(range).length(), arrived_);
  }
  void add(const fusion::ByteRange& range, std::byte* sum, const std::byte* contribution) const {
    kernels_.combine(sum, contribution, elements_of(range).length(), arrived_);
  }
  void add_last(const fusion::ByteRange& range, std::byte* sum,
                const std::byte* contribution) const {
    kernels_.last_hop(sum, contribution, elements_of(range).length(), arrived_);
  }
  void copy_out(int chunk, const fusion::ByteRange& range, const std::byte* buffer) const;

 private:
  [[nodiscard]] WireCopy wire_copy() const { return {view_, wire_}; }
  [[nodiscard]] ElementRange elements_of(const fusion::ByteRange& range) const {
    return {range.begin / element_, range.end / element_};
  }
  void copy_raw(int chunk, const fusion::ByteRange& range, std::byte* buffer) const;
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
  Scaling scaling_;  // of this rank's contribution
  Scaling arrived_;  // of others', which have been prescaled where they come from
};

}  // namespace ronde::collectives
