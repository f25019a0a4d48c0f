// SPDX-License-Identifier: Apache-2.0
// Copies between a fused view and slots, in the dtype that travels: that of the view, or 16 bits
// for f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "collectives/kernels/copy.h"
#include "collectives/kernels/window_plan.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// Thread safety: immutable; the memory behind the view is the user's.
class WireCopy {
 public:
  // The view must outlive this object.
  WireCopy(const fusion::FusedView& view, base::DType wire)
      : view_(view),
        wire_(wire),
        user_size_(base::size_of(view.dtype())),
        wire_size_(base::size_of(wire)) {}

  [[nodiscard]] bool compresses() const { return wire_ != view_.dtype(); }
  [[nodiscard]] std::int64_t wire_size() const { return wire_size_; }
  [[nodiscard]] std::int64_t elements(int chunk) const {
    return view_.chunk_bytes(chunk).value() / user_size_;
  }

  // Copies elements from the user's inputs.
  void in(int chunk, const ElementRange& range, std::byte* to, StoreKind kind) const;
  // Copies elements to the user's outputs.
  void out(int chunk, const ElementRange& range, const std::byte* from) const;

  // Calls f(input, output, elements, bytes that travel before this fragment) for each fragment.
  template <class F>
  void for_each_fragment(int chunk, const ElementRange& range, F&& f) const {
    std::int64_t before = 0;
    view_.for_each_fragment(chunk, range.begin * user_size_, range.length() * user_size_,
                            [&](const std::byte* input, std::byte* output, std::int64_t bytes) {
                              const std::int64_t elements = bytes / user_size_;
                              f(input, output, elements, before);
                              before += elements * wire_size_;
                            });
  }

 private:
  const fusion::FusedView& view_;
  base::DType wire_;
  std::int64_t user_size_;
  std::int64_t wire_size_;
};

}  // namespace ronde::collectives
