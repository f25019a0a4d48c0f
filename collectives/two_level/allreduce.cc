// SPDX-License-Identifier: Apache-2.0
#include "collectives/two_level/allreduce.h"

#include <utility>

#include "base/check.h"
#include "collectives/in_host/moves.h"
#include "collectives/two_level/blocks.h"
#include "collectives/two_level/reduction.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

namespace {

class TwoLevelAllreduce final : public TwoLevelReduction {
 public:
  using TwoLevelReduction::TwoLevelReduction;

 private:
  Phase across(std::int64_t block) override {
    if (!has_slice()) return nothing();
    return way().make(*context().across, context().workspace, sums_of_host(block), across_hosts(),
                      context().shape.ranks(), context().segment, tag_of(block));
  }
  Phase after(std::int64_t block) override {
    return in_host_allgather(context().slots,
                             slices(block).with_input_at(context().slots.rank(), memory_of(block)),
                             context().tuning);
  }
};

}  // namespace

std::unique_ptr<Collective> two_level_allreduce(const TwoLevelContext& context,
                                                const std::vector<base::TensorView>& tensors,
                                                const Reduction& reduction, int first_tag) {
  const base::JobShape& shape = context.shape;
  base::check(shape.hosts() > 1, "two_level_allreduce: at least two hosts");
  fusion::FusedView view(tensors, shape.hosts());
  const base::Bytes bytes = bytes_on_wire(view, reduction);
  const Way& way = choose_way(context.algorithm, &Algorithm::allreduce, bytes, shape.hosts());
  if (shape.ranks() > shape.hosts()) {
    BlockPlan plan(view, slices_for(bytes, shape), context.block);
    return std::make_unique<TwoLevelAllreduce>(context, std::move(view), reduction, way,
                                               std::move(plan), first_tag);
  }
  // With one rank on every host there is nothing to sum in phase A.
  return way.make(*context.across, context.workspace, std::move(view),
                  of_rank(reduction, context.rank), shape.ranks(), context.segment, first_tag);
}

}  // namespace ronde::collectives
