// SPDX-License-Identifier: Apache-2.0
// What moves bytes in a job of several hosts without arithmetic: between the hosts as messages, so
// that every byte comes to every host once, and inside them over the slots of the board, in blocks
// (two_level/phases.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/tensor.h"
#include "collectives/transport/collective.h"
#include "collectives/transport/transport.h"
#include "collectives/two_level/context.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// The view has one chunk. The root's input goes to every output. Between the hosts it travels from
// the root to the leaders of the other hosts. `all` is the transport of all ranks.
[[nodiscard]] std::unique_ptr<Collective> two_level_broadcast(const TwoLevelContext& context,
                                                              Transport& all,
                                                              fusion::FusedView view,
                                                              std::int32_t root, int first_tag);

// blocks[r] is what rank r gives: with an output everywhere, and an input on rank r. They may
// differ in length. Between the hosts, the i-th ranks carry slice i of what each host gives, in a
// ring.
[[nodiscard]] std::unique_ptr<Collective> two_level_allgather(
    const TwoLevelContext& context, base::DType dtype, const std::vector<base::TensorView>& blocks,
    int first_tag);

// Done when every rank has begun it: the ranks of each host, then the leaders, then the hosts hear
// of it.
[[nodiscard]] std::unique_ptr<Collective> two_level_barrier(const TwoLevelContext& context,
                                                            int first_tag);

}  // namespace ronde::collectives
