// SPDX-License-Identifier: Apache-2.0
#include "collectives/ring_arithmetic.h"

#include <span>

#include "base/check.h"

namespace ronde::collectives {

RingArithmetic::RingArithmetic(fusion::FusedView view, const Reduction& reduction, int ranks)
    : view_(std::move(view)),
      kernels_(kernels_for(reduction.dtype, reduction.op)),
      scaling_(scaling_of(reduction, ranks)) {
  base::check(view_.bytes().value() == 0 || view_.dtype() == reduction.dtype,
              "RingArithmetic: the view and the reduction differ in dtype");
}

void RingArithmetic::run(const RingTurn& turn, const fusion::ByteRange& range,
                         std::byte* buffer) const {
  switch (turn.verb) {
    case RingVerb::kSend:
      copy_in(turn.chunk, range, buffer);
      scale(kernels_.first, range, buffer);
      return;
    case RingVerb::kReceiveReduceSend:
      reduce(kernels_.combine, turn.chunk, range, buffer);
      return;
    case RingVerb::kReceiveReduceCopySend:
      reduce(kernels_.last_hop, turn.chunk, range, buffer);
      copy_out(turn.chunk, range, buffer);
      return;
    case RingVerb::kReceiveCopySend:
    case RingVerb::kReceiveCopy:
      copy_out(turn.chunk, range, buffer);
      return;
    case RingVerb::kCopySend:
      copy_in(turn.chunk, range, buffer);
      view_.copy_across(turn.chunk, range.begin, range.length());
      return;
    case RingVerb::kReduceCopy:
      copy_in(turn.chunk, range, buffer);
      scale(kernels_.only, range, buffer);
      copy_out(turn.chunk, range, buffer);
      return;
    case RingVerb::kCopy:
      view_.copy_across(turn.chunk, range.begin, range.length());
      return;
  }
}

void RingArithmetic::copy_in(int chunk, const fusion::ByteRange& range, std::byte* buffer) const {
  view_.copy_in(chunk, range.begin, {buffer, static_cast<std::size_t>(range.length())});
}

void RingArithmetic::copy_out(int chunk, const fusion::ByteRange& range,
                              const std::byte* buffer) const {
  view_.copy_out(chunk, range.begin, {buffer, static_cast<std::size_t>(range.length())});
}

void RingArithmetic::reduce(ReduceKernels::WithOwn kernel, int chunk,
                            const fusion::ByteRange& range, std::byte* buffer) const {
  const std::int64_t element = base::size_of(view_.dtype());
  view_.for_each_fragment(chunk, range.begin, range.length(),
                          [&](const std::byte* input, std::byte*, std::int64_t bytes) {
                            kernel(buffer, input, bytes / element, scaling_);
                            buffer += bytes;
                          });
}

void RingArithmetic::scale(ReduceKernels::InPlace kernel, const fusion::ByteRange& range,
                           std::byte* buffer) const {
  kernel(buffer, range.length() / base::size_of(view_.dtype()), scaling_);
}

}  // namespace ronde::collectives
