// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter among the ranks of a host, over the slots of the board: rank r sums block r of all
// ranks' inputs and keeps it. Blocks may differ in size and be empty.
#pragma once

#include <memory>

#include "collectives/in_host/slots.h"
#include "collectives/kernels/reduce.h"
#include "collectives/transport/collective.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// `view` is made by FusedView::of_chunks: chunk r is block r, and only this rank's has an output.
// Order and rounding are those of in_host_allreduce. The slots and the tensors must outlive the
// collective. Thread safety: that of Collective.
[[nodiscard]] std::unique_ptr<Collective> in_host_reduce_scatter(Slots& slots,
                                                                 fusion::FusedView view,
                                                                 const Reduction& reduction,
                                                                 const SlotTuning& tuning);

}  // namespace ronde::collectives
