// SPDX-License-Identifier: Apache-2.0
#include "collectives/two_level/reduction.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"
#include "base/tensor.h"
#include "collectives/in_host/reduce_scatter.h"

namespace ronde::collectives {
namespace {

using base::Bytes;
using fusion::FusedView;

// The reduction inside a host: sums without what is applied to the whole result.
Reduction in_host(Reduction reduction, const TwoLevelContext& context) {
  std::vector<double> here;
  for (const std::int32_t rank : context.shape.ranks_of(context.shape.host_of(context.rank))) {
    if (reduction.prescales.empty()) break;
    here.push_back(reduction.prescales.at(static_cast<std::size_t>(rank)));
  }
  reduction.prescales = std::move(here);
  if (reduction.op == base::ReduceOp::kAverage) reduction.op = base::ReduceOp::kSum;
  reduction.postscale = 1.0;
  return reduction;
}

Reduction between_hosts(Reduction reduction) {
  reduction.prescale = 1.0;
  reduction.prescales.clear();
  return reduction;
}

}  // namespace

Bytes bytes_on_wire(const FusedView& view, const Reduction& reduction) {
  const base::DType wire = base::wire_dtype(reduction.dtype, reduction.compression);
  return Bytes(view.bytes().value() / base::size_of(reduction.dtype) * base::size_of(wire));
}

TwoLevelReduction::TwoLevelReduction(const TwoLevelContext& context, FusedView view,
                                     const Reduction& reduction, const Way& way, BlockPlan plan,
                                     int first_tag)
    : TwoLevelPhases(plan.blocks(), first_tag, context.slots.times()),
      context_(context),
      view_(std::move(view)),
      in_host_(in_host(reduction, context)),
      across_hosts_(between_hosts(reduction)),
      way_(way),
      plan_(std::move(plan)),
      memory_(context.workspace) {}

base::Status TwoLevelReduction::open() {
  if (!has_slice()) return {};
  base::check(context_.across != nullptr && context_.across->size() == context_.shape.hosts(),
              "TwoLevelReduction: one rank of each host");
  const std::int64_t blocks = std::min(kBlocks, plan_.blocks());
  RONDE_RETURN_IF_ERROR(
      memory_.acquire(*context_.across, Bytes(blocks * plan_.slice_bytes().value())));
  memory_.mark_unreferenced();  // requests point at the segments of phase B, never here
  return {};
}

TwoLevelPhases::Phase TwoLevelReduction::before(std::int64_t block) {
  if (block == 0) RONDE_RETURN_IF_ERROR(open());
  FusedView& by_position = slices_[static_cast<std::size_t>(block % kBlocks)];
  by_position = FusedView::of_parts(view_, plan_.parts_by_position(block, context_.slots.ranks()));
  return in_host_reduce_scatter(context_.slots,
                                by_position.with_output_at(context_.slots.rank(), memory_of(block)),
                                in_host_, context_.tuning);
}

std::byte* TwoLevelReduction::memory_of(std::int64_t block) const {
  return has_slice() ? memory_.memory() + block % kBlocks * plan_.slice_bytes().value() : nullptr;
}

FusedView TwoLevelReduction::sums_of_host(std::int64_t block) const {
  const base::DType dtype = across_hosts_.dtype;
  std::vector<base::TensorView> chunks;
  std::byte* next = memory_of(block);
  for (int chunk = 0; chunk < plan_.chunks(); ++chunk) {
    const std::int64_t bytes = plan_.part(block, context_.slots.rank(), chunk).length();
    chunks.push_back({next, next, base::Elements(bytes / base::size_of(dtype)), dtype});
    next += bytes;
  }
  return FusedView::of_chunks(dtype, chunks);
}

}  // namespace ronde::collectives
