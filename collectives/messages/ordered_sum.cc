// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/ordered_sum.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "collectives/kernels/copy.h"

namespace ronde::collectives {
namespace {

// Returns a compressed reduction as one of tensors of the dtype that travels.
Reduction as_it_travels(Reduction reduction) {
  base::check(
      reduction.compression == base::Compression::kNone || reduction.dtype == base::DType::kF32,
      "OrderedSum: only f32 is compressed");
  reduction.dtype = base::wire_dtype(reduction.dtype, reduction.compression);
  reduction.compression = base::Compression::kNone;
  return reduction;
}

}  // namespace

OrderedSum::OrderedSum(fusion::FusedView view)
    : view_(std::move(view)),
      wire_(view_.dtype()),
      element_(base::size_of(wire_)),
      wire_element_(element_) {}

OrderedSum::OrderedSum(fusion::FusedView view, const Reduction& reduction, int ranks)
    : view_(std::move(view)),
      wire_(as_it_travels(reduction).dtype),
      element_(base::size_of(reduction.dtype)),
      wire_element_(base::size_of(wire_)),
      kernels_(kernels_for(wire_, reduction.op)),
      scaling_(scaling_of(as_it_travels(reduction), ranks)),
      arrived_(scaling_) {
  arrived_.prescale = 1.0;
  base::check(reduction.prescales.empty(), "OrderedSum: each rank has its own prescale");
  base::check(view_.bytes().value() == 0 || view_.dtype() == reduction.dtype,
              "OrderedSum: the view and the reduction differ in dtype");
}

void OrderedSum::run(const RingTurn& turn, const fusion::ByteRange& range,
                     std::byte* buffer) const {
  switch (turn.verb) {
    case RingVerb::kSend:
      copy_raw(turn.chunk, range, buffer);
      scale(kernels_.first, range, buffer);
      return;
    case RingVerb::kReceiveReduceSend:
      reduce(kernels_.combine, turn.chunk, range, buffer);
      return;
    case RingVerb::kReceiveReduceCopySend:
    case RingVerb::kReceiveReduceCopy:
      reduce(kernels_.last_hop, turn.chunk, range, buffer);
      copy_out(turn.chunk, range, buffer);
      return;
    case RingVerb::kReceiveCopySend:
    case RingVerb::kReceiveCopy:
      copy_out(turn.chunk, range, buffer);
      return;
    case RingVerb::kCopySend:
      copy_raw(turn.chunk, range, buffer);
      view_.copy_across(turn.chunk, range.begin, range.length());
      return;
    case RingVerb::kReduceCopy:
      copy_raw(turn.chunk, range, buffer);
      scale(kernels_.only, range, buffer);
      copy_out(turn.chunk, range, buffer);
      return;
    case RingVerb::kCopy:
      view_.copy_across(turn.chunk, range.begin, range.length());
      return;
  }
}

void OrderedSum::copy_in(int chunk, const fusion::ByteRange& range, std::byte* buffer) const {
  copy_raw(chunk, range, buffer);
  if (scaling_.prescale != 1.0) scale(kernels_.first, range, buffer);
}

void OrderedSum::copy_raw(int chunk, const fusion::ByteRange& range, std::byte* buffer) const {
  wire_copy().in(chunk, elements_of(range), buffer, StoreKind::kTemporal);
}

void OrderedSum::copy_out(int chunk, const fusion::ByteRange& range,
                          const std::byte* buffer) const {
  wire_copy().out(chunk, elements_of(range), buffer);
}

void OrderedSum::reduce(ReduceKernels::WithOwn kernel, int chunk, const fusion::ByteRange& range,
                        std::byte* buffer) const {
  const bool compressed = wire_ != view_.dtype();
  wire_copy().for_each_fragment(
      chunk, elements_of(range),
      [&](const std::byte* input, std::byte*, std::int64_t elements, std::int64_t before) {
        base::check(input != nullptr, "OrderedSum: a reduction needs an input");
        if (compressed) {
          reduce_narrowed(kernel, buffer + before, input, elements);
        } else {
          kernel(buffer + before, input, elements, scaling_);
        }
      });
}

// The kernels take 16-bit operands alone, so this rank's f32 input is narrowed into a block that
// stays in the first cache.
void OrderedSum::reduce_narrowed(ReduceKernels::WithOwn kernel, std::byte* buffer,
                                 const std::byte* input, std::int64_t elements) const {
  constexpr std::int64_t kBlockBytes = 4096;
  alignas(64) std::array<std::byte, kBlockBytes> narrowed;
  const std::int64_t block = kBlockBytes / wire_element_;
  while (elements > 0) {
    const std::int64_t now = std::min(block, elements);
    narrow_to_wire(wire_, narrowed.data(), input, now, StoreKind::kTemporal);
    kernel(buffer, narrowed.data(), now, scaling_);
    buffer += now * wire_element_;
    input += now * element_;
    elements -= now;
  }
}

void OrderedSum::scale(ReduceKernels::InPlace kernel, const fusion::ByteRange& range,
                       std::byte* buffer) const {
  kernel(buffer, elements_of(range).length(), scaling_);
}

}  // namespace ronde::collectives
