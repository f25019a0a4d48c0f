// SPDX-License-Identifier: Apache-2.0
// The copies of each fragment of a range, narrowed or widened where f32 travels in 16 bits.
#include "collectives/kernels/wire_copy.h"

#include "base/check.h"

namespace ronde::collectives {

void WireCopy::in(int chunk, const ElementRange& range, std::byte* to, StoreKind kind) const {
  for_each_fragment(chunk, range,
                    [&](const std::byte* input, std::byte* /*output*/, std::int64_t elements,
                        std::int64_t before) {
                      base::check(input != nullptr, "WireCopy: nothing to copy in from");
                      if (compresses()) {
                        narrow_to_wire(wire_, to + before, input, elements, kind);
                      } else {
                        copy_bytes(to + before, input, elements * wire_size_, kind);
                      }
                    });
}

void WireCopy::out(int chunk, const ElementRange& range, const std::byte* from) const {
  for_each_fragment(chunk, range,
                    [&](const std::byte* /*input*/, std::byte* output, std::int64_t elements,
                        std::int64_t before) {
                      if (output == nullptr) return;
                      if (compresses()) {
                        widen_from_wire(wire_, output, from + before, elements);
                      } else {
                        copy_bytes(output, from + before, elements * wire_size_,
                                   StoreKind::kTemporal);
                      }
                    });
}

}  // namespace ronde::collectives
