// SPDX-License-Identifier: Apache-2.0
#include "collectives/hierarchical_reduce_scatter.h"

#include <utility>

#include "base/check.h"
#include "collectives/block_plan.h"
#include "collectives/hierarchical_reduction.h"
#include "collectives/host_moves.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {
namespace {

using fusion::FusedView;
using fusion::ViewPart;

class HierarchicalReduceScatter final : public HierarchicalReduction {
 public:
  using HierarchicalReduction::HierarchicalReduction;

 private:
  Stage across(std::int64_t block) override {
    if (!drives()) return nothing();
    return reduce_scatter_between(algorithm(), *job().across, job().workspace, sums_of_host(block),
                                  across_hosts(), job().shape.ranks(), job().segment,
                                  tag_of(block));
  }

  // Of the view only what this host's ranks get, and there only this rank's block has an output.
  Stage after(std::int64_t block) override {
    const std::int32_t here = job().shape.host_of(job().rank);
    auto parts = plan().parts_by_position(block, job().slots.ranks());
    for (std::vector<ViewPart>& slice : parts) {
      std::erase_if(slice, [here](const ViewPart& part) { return part.chunk != here; });
    }
    return host_allgather(
        job().slots,
        FusedView::of_parts(view(), parts).with_input_at(job().slots.rank(), own_sum(block, here)),
        job().tuning);
  }

  // Where B leaves the sum of this rank's slice.
  [[nodiscard]] const std::byte* own_sum(std::int64_t block, std::int32_t here) const {
    const std::byte* at = memory_of(block);
    for (int chunk = 0; chunk < here && drives(); ++chunk) {
      at += plan().part(block, job().slots.rank(), chunk).length();
    }
    return at;
  }
};

}  // namespace

std::unique_ptr<Collective> hierarchical_reduce_scatter(const HostsJob& job,
                                                        const std::vector<base::TensorView>& blocks,
                                                        const Reduction& reduction, int first_tag) {
  const JobShape& shape = job.shape;
  base::check(shape.hosts() > 1, "hierarchical_reduce_scatter: at least two hosts");
  FusedView view = by_host(shape, FusedView::of_chunks(reduction.dtype, blocks));
  const base::Bytes bytes = bytes_on_wire(view, reduction);
  const Algorithm algorithm =
      job.algorithm.value_or(choose_scatter_algorithm(bytes, shape.hosts()));
  if (shape.ranks() > shape.hosts()) {
    BlockPlan plan(view, slices_for(bytes, shape), job.block);
    return std::make_unique<HierarchicalReduceScatter>(job, std::move(view), reduction, algorithm,
                                                       std::move(plan), first_tag);
  }
  return reduce_scatter_between(algorithm, *job.across, job.workspace, std::move(view), reduction,
                                shape.ranks(), job.segment, first_tag);
}

}  // namespace ronde::collectives
