// SPDX-License-Identifier: Apache-2.0
#include "collectives/two_level/reduce_scatter.h"

#include <utility>

#include "base/check.h"
#include "collectives/in_host/moves.h"
#include "collectives/two_level/blocks.h"
#include "collectives/two_level/reduction.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

namespace {

using fusion::FusedView;
using fusion::ViewPart;

class TwoLevelReduceScatter final : public TwoLevelReduction {
 public:
  using TwoLevelReduction::TwoLevelReduction;

 private:
  Phase across(std::int64_t block) override {
    if (!has_slice()) return nothing();
    return way().make(*context().across, context().workspace, sums_of_host(block), across_hosts(),
                      context().shape.ranks(), context().segment, tag_of(block));
  }

  // Phase C passes on this host's chunk alone, in which only this rank's block has an output.
  Phase after(std::int64_t block) override {
    const std::int32_t here = context().shape.host_of(context().rank);
    auto parts = plan().parts_by_position(block, context().slots.ranks());
    for (std::vector<ViewPart>& slice : parts) {
      std::erase_if(slice, [here](const ViewPart& part) { return part.chunk != here; });
    }
    return in_host_allgather(context().slots,
                             FusedView::of_parts(view(), parts)
                                 .with_input_at(context().slots.rank(), own_sum(block, here)),
                             context().tuning);
  }

  // The place where phase B leaves the sum of this rank's slice.
  [[nodiscard]] const std::byte* own_sum(std::int64_t block, std::int32_t here) const {
    const std::byte* at = memory_of(block);
    for (int chunk = 0; chunk < here && has_slice(); ++chunk) {
      at += plan().part(block, context().slots.rank(), chunk).length();
    }
    return at;
  }
};

}  // namespace

std::unique_ptr<Collective> two_level_reduce_scatter(const TwoLevelContext& context,
                                                     const std::vector<base::TensorView>& blocks,
                                                     const Reduction& reduction, int first_tag) {
  const base::JobShape& shape = context.shape;
  base::check(shape.hosts() > 1, "two_level_reduce_scatter: at least two hosts");
  FusedView view = by_host(shape, FusedView::of_chunks(reduction.dtype, blocks));
  const base::Bytes bytes = bytes_on_wire(view, reduction);
  const Way& way = choose_way(context.algorithm, &Algorithm::reduce_scatter, bytes, shape.hosts());
  if (shape.ranks() > shape.hosts()) {
    BlockPlan plan(view, slices_for(bytes, shape), context.block);
    return std::make_unique<TwoLevelReduceScatter>(context, std::move(view), reduction, way,
                                                   std::move(plan), first_tag);
  }
  return way.make(*context.across, context.workspace, std::move(view),
                  of_rank(reduction, context.rank), shape.ranks(), context.segment, first_tag);
}

}  // namespace ronde::collectives
