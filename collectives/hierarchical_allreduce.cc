// SPDX-License-Identifier: Apache-2.0
#include "collectives/hierarchical_allreduce.h"

#include <utility>

#include "base/check.h"
#include "collectives/block_plan.h"
#include "collectives/hierarchical_reduction.h"
#include "collectives/host_moves.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {
namespace {

using fusion::FusedView;

class HierarchicalAllreduce final : public HierarchicalReduction {
 public:
  using HierarchicalReduction::HierarchicalReduction;

 private:
  Stage across(std::int64_t block) override {
    if (!drives()) return nothing();
    return allreduce_between(algorithm(), *job().across, job().workspace, sums_of_host(block),
                             across_hosts(), job().shape.ranks(), job().segment, tag_of(block));
  }
  Stage after(std::int64_t block) override {
    return host_allgather(job().slots,
                          slices(block).with_input_at(job().slots.rank(), memory_of(block)),
                          job().tuning);
  }
};

}  // namespace

std::unique_ptr<Collective> hierarchical_allreduce(const HostsJob& job,
                                                   const std::vector<base::TensorView>& tensors,
                                                   const Reduction& reduction, int first_tag) {
  const JobShape& shape = job.shape;
  base::check(shape.hosts() > 1, "hierarchical_allreduce: at least two hosts");
  FusedView view(tensors, shape.hosts());
  const base::Bytes bytes = bytes_on_wire(view, reduction);
  const Algorithm algorithm = job.algorithm.value_or(choose_algorithm(bytes, shape.hosts()));
  if (shape.ranks() > shape.hosts()) {
    BlockPlan plan(view, slices_for(bytes, shape), job.block);
    return std::make_unique<HierarchicalAllreduce>(job, std::move(view), reduction, algorithm,
                                                   std::move(plan), first_tag);
  }
  // One rank on every host has nothing to sum before.
  return allreduce_between(algorithm, *job.across, job.workspace, std::move(view), reduction,
                           shape.ranks(), job.segment, first_tag);
}

}  // namespace ronde::collectives
