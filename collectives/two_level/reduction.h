// SPDX-License-Identifier: Apache-2.0
// The base of the reductions of a job over several hosts: phase A, which sums inside each host, and
// the engine memory that phase B reduces in place and phase C reads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/numbers.h"
#include "base/status.h"
#include "collectives/kernels/reduce.h"
#include "collectives/messages/choose.h"
#include "collectives/transport/workspace.h"
#include "collectives/two_level/blocks.h"
#include "collectives/two_level/context.h"
#include "collectives/two_level/phases.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// Returns how many bytes the view takes on the wire. Pure.
[[nodiscard]] base::Bytes bytes_on_wire(const fusion::FusedView& view, const Reduction& reduction);

// It owns the sums of this host, in a block of the context's workspace.
//
// Thread safety: one thread at a time (whoever has the agent's role).
class TwoLevelReduction : public TwoLevelPhases {
 public:
  // The view, which the plan cuts, has a chunk for each host; the way is that of phase B.
  TwoLevelReduction(const TwoLevelContext& context, fusion::FusedView view,
                    const Reduction& reduction, const Way& way, BlockPlan plan, int first_tag);

 protected:
  [[nodiscard]] const TwoLevelContext& context() const { return context_; }
  [[nodiscard]] const fusion::FusedView& view() const { return view_; }
  [[nodiscard]] const BlockPlan& plan() const { return plan_; }
  [[nodiscard]] const Way& way() const { return way_; }
  // The reduction of the hosts' sums, without the prescale, which phase A has applied.
  [[nodiscard]] const Reduction& across_hosts() const { return across_hosts_; }

  // Tells whether this rank has a slice.
  [[nodiscard]] bool has_slice() const { return context_.slots.rank() < plan_.slices(); }
  // The memory of this rank's slice of a block, chunk after chunk; nullptr where it has none.
  [[nodiscard]] std::byte* memory_of(std::int64_t block) const;
  // A view of that memory: the sums of this host, in place, with a chunk for each host.
  [[nodiscard]] fusion::FusedView sums_of_host(std::int64_t block) const;
  // The slices of a block whose A has begun and whose C has not finished: by position, in the
  // user's tensors.
  [[nodiscard]] const fusion::FusedView& slices(std::int64_t block) const {
    return slices_[static_cast<std::size_t>(block % kBlocks)];
  }

 private:
  Phase before(std::int64_t block) final;
  base::Status open();

  const TwoLevelContext context_;
  const fusion::FusedView view_;
  const Reduction in_host_;
  const Reduction across_hosts_;
  const Way& way_;
  const BlockPlan plan_;
  WorkspaceLease memory_;
  std::array<fusion::FusedView, kBlocks> slices_{fusion::FusedView{{}, 1}, fusion::FusedView{{}, 1},
                                                 fusion::FusedView{{}, 1}};
};

}  // namespace ronde::collectives
