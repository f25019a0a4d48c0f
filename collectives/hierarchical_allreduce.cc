// SPDX-License-Identifier: Apache-2.0
#include "collectives/hierarchical_allreduce.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "base/dtype.h"
#include "collectives/block_plan.h"
#include "collectives/host_moves.h"
#include "collectives/host_reduce_scatter.h"
#include "collectives/host_stages.h"

namespace ronde::collectives {
namespace {

using base::Bytes;
using base::Status;
using fusion::FusedView;

// Below this a message costs as much as what is in it.
constexpr std::int64_t kSmallestSliceBytes = 4 << 10;

// What the ranks of a host do, which is not the end of it.
Reduction in_host(Reduction reduction) {
  if (reduction.op == base::ReduceOp::kAverage) reduction.op = base::ReduceOp::kSum;
  reduction.postscale = 1.0;
  return reduction;
}

// What the hosts do with the sums.
Reduction across_hosts(Reduction reduction) {
  reduction.prescale = 1.0;
  return reduction;
}

Bytes on_wire(const FusedView& view, const Reduction& reduction) {
  const base::DType wire = base::wire_dtype(reduction.dtype, reduction.compression);
  return Bytes(view.bytes().value() / base::size_of(reduction.dtype) * base::size_of(wire));
}

Algorithm algorithm_for(const HostsJob& job, const FusedView& view, const Reduction& reduction) {
  return job.algorithm.value_or(choose_algorithm(on_wire(view, reduction), job.shape.hosts()));
}

class HierarchicalAllreduce final : public HostStages {
 public:
  HierarchicalAllreduce(const HostsJob& job, FusedView view, const Reduction& reduction,
                        BlockPlan plan, int first_tag)
      : HostStages(plan.blocks(), first_tag),
        job_(job),
        view_(std::move(view)),
        reduction_(reduction),
        algorithm_(algorithm_for(job, view_, reduction)),
        plan_(std::move(plan)),
        memory_(job.workspace) {}

 private:
  Stage before(std::int64_t block) override;
  Stage across(std::int64_t block) override;
  Stage after(std::int64_t block) override;

  [[nodiscard]] bool drives() const { return job_.slots.rank() < plan_.slices(); }
  [[nodiscard]] FusedView& slices(std::int64_t block) {
    return slices_[static_cast<std::size_t>(block % kBlocks)];
  }
  [[nodiscard]] std::byte* memory_of(std::int64_t block) const {
    return drives() ? memory_.memory() + block % kBlocks * plan_.slice_bytes().value() : nullptr;
  }

  Status open();
  [[nodiscard]] FusedView own_memory(std::int64_t block) const;

  const HostsJob job_;
  const FusedView view_;
  const Reduction reduction_;
  const Algorithm algorithm_;
  const BlockPlan plan_;
  WorkspaceLease memory_;
  std::array<FusedView, kBlocks> slices_{FusedView{{}, 1}, FusedView{{}, 1}, FusedView{{}, 1}};
};

Status HierarchicalAllreduce::open() {
  if (!drives()) return {};
  base::check(job_.across != nullptr && job_.across->size() == job_.shape.hosts(),
              "hierarchical_allreduce: one rank of each host");
  const std::int64_t blocks = std::min(kBlocks, plan_.blocks());
  RONDE_RETURN_IF_ERROR(memory_.acquire(*job_.across, Bytes(blocks * plan_.slice_bytes().value())));
  memory_.nothing_points_here();  // requests point at the segments of stage B
  return {};
}

HostStages::Stage HierarchicalAllreduce::before(std::int64_t block) {
  if (block == 0) RONDE_RETURN_IF_ERROR(open());
  slices(block) = FusedView::of_parts(view_, plan_.parts_by_position(block, job_.slots.ranks()));
  return host_reduce_scatter(job_.slots,
                             slices(block).with_output_at(job_.slots.rank(), memory_of(block)),
                             in_host(reduction_), job_.tuning);
}

HostStages::Stage HierarchicalAllreduce::across(std::int64_t block) {
  if (!drives()) return nothing();
  return allreduce_between(algorithm_, *job_.across, job_.workspace, own_memory(block),
                           across_hosts(reduction_), job_.shape.ranks(), job_.segment,
                           tag_of(block));
}

HostStages::Stage HierarchicalAllreduce::after(std::int64_t block) {
  return host_allgather(
      job_.slots, slices(block).with_input_at(job_.slots.rank(), memory_of(block)), job_.tuning);
}

// This rank's slice, where A has summed it: the chunks follow each other.
FusedView HierarchicalAllreduce::own_memory(std::int64_t block) const {
  std::vector<base::TensorView> chunks;
  std::byte* next = memory_of(block);
  for (int chunk = 0; chunk < plan_.chunks(); ++chunk) {
    const std::int64_t bytes = plan_.part(block, job_.slots.rank(), chunk).length();
    chunks.push_back(
        {next, next, base::Elements(bytes / base::size_of(reduction_.dtype)), reduction_.dtype});
    next += bytes;
  }
  return FusedView::of_chunks(reduction_.dtype, chunks);
}

}  // namespace

std::int32_t slices_for(Bytes on_wire, const JobShape& shape) {
  return base::narrow<std::int32_t>(
      std::clamp<std::int64_t>(on_wire.value() / kSmallestSliceBytes, 1, shape.slices()));
}

std::unique_ptr<Collective> hierarchical_allreduce(const HostsJob& job,
                                                   const std::vector<base::TensorView>& tensors,
                                                   const Reduction& reduction, int first_tag) {
  const JobShape& shape = job.shape;
  base::check(shape.hosts() > 1, "hierarchical_allreduce: at least two hosts");
  FusedView view(tensors, shape.hosts());
  if (shape.ranks() > shape.hosts()) {
    BlockPlan plan(view, slices_for(on_wire(view, reduction), shape), block_of(job));
    return std::make_unique<HierarchicalAllreduce>(job, std::move(view), reduction, std::move(plan),
                                                   first_tag);
  }
  // One rank on every host has nothing to sum before.
  const Algorithm algorithm = algorithm_for(job, view, reduction);
  return allreduce_between(algorithm, *job.across, job.workspace, std::move(view), reduction,
                           shape.ranks(), job.segment, first_tag);
}

}  // namespace ronde::collectives
