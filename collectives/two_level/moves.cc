// SPDX-License-Identifier: Apache-2.0
#include "collectives/two_level/moves.h"

#include <optional>
#include <utility>

#include "base/check.h"
#include "collectives/in_host/moves.h"
#include "collectives/messages/barrier.h"
#include "collectives/messages/broadcast.h"
#include "collectives/messages/ring.h"
#include "collectives/two_level/blocks.h"
#include "collectives/two_level/phases.h"

namespace ronde::collectives {

using base::JobShape;

namespace {

using fusion::FusedView;
using fusion::ViewPart;

// The rank that sends or receives between hosts for its host: the root, and elsewhere the leader.
std::int32_t representative_of(const JobShape& shape, std::int32_t host, std::int32_t root) {
  return shape.host_of(root) == host ? root : shape.leader_of(host);
}

std::vector<int> representatives(const JobShape& shape, std::int32_t root) {
  std::vector<int> members;
  members.reserve(base::narrow<std::size_t>(shape.hosts()));
  for (std::int32_t host = 0; host < shape.hosts(); ++host) {
    members.push_back(representative_of(shape, host, root));
  }
  return members;
}

// Phase B brings a block to each host's representative, and phase C from there to the other ranks
// of the host.
class TwoLevelBroadcast final : public TwoLevelPhases {
 public:
  TwoLevelBroadcast(const TwoLevelContext& context, Transport& all, FusedView view,
                    std::int32_t root, BlockPlan plan, int first_tag)
      : TwoLevelPhases(plan.blocks(), first_tag, context.slots.times()),
        context_(context),
        view_(std::move(view)),
        plan_(std::move(plan)),
        root_(root),
        representative_(
            representative_of(context.shape, context.shape.host_of(context.rank), root)) {
    if (representative_ == context.rank)
      between_.emplace(all, representatives(context.shape, root));
  }

 private:
  Phase before(std::int64_t /*block*/) override { return nothing(); }
  Phase across(std::int64_t block) override {
    if (!between_) return nothing();
    return broadcast(*between_, context_.workspace, part(block), context_.shape.host_of(root_),
                     context_.segment, tag_of(block));
  }
  Phase after(std::int64_t block) override {
    if (context_.slots.ranks() == 1) return nothing();
    const bool passes_on = context_.rank == representative_ && context_.rank != root_;
    return in_host_broadcast(context_.slots,
                             passes_on ? part(block).with_outputs_as_inputs() : part(block),
                             context_.shape.position_of(representative_), context_.tuning);
  }
  [[nodiscard]] FusedView part(std::int64_t block) const {
    return FusedView::of_parts(view_, {plan_.parts(block, 0)});
  }

  const TwoLevelContext context_;
  const FusedView view_;
  const BlockPlan plan_;
  const std::int32_t root_;
  const std::int32_t representative_;
  std::optional<Transport> between_;
};

// A chunk has the blocks of a host's ranks, one after another. With the first block, phase A brings
// this host's chunk into all outputs on this host. Phase B sends it from there, and phase C copies
// the chunks that phase B received.
class TwoLevelAllgather final : public TwoLevelPhases {
 public:
  TwoLevelAllgather(const TwoLevelContext& context, FusedView blocks, const FusedView& hosts,
                    BlockPlan plan, int first_tag)
      : TwoLevelPhases(plan.blocks(), first_tag, context.slots.times()),
        context_(context),
        host_(context.shape.host_of(context.rank)),
        blocks_(std::move(blocks)),
        outputs_(hosts.with_outputs_as_inputs()),
        plan_(std::move(plan)) {}

 private:
  Phase before(std::int64_t block) override {
    if (block > 0) return nothing();
    std::vector<std::vector<ViewPart>> here;
    for (const std::int32_t rank : context_.shape.ranks_of(host_)) {
      here.push_back({{rank, {0, blocks_.chunk_bytes(rank).value()}}});
    }
    return in_host_allgather(context_.slots, FusedView::of_parts(blocks_, here), context_.tuning);
  }
  Phase across(std::int64_t block) override {
    const std::int32_t slice = context_.slots.rank();
    if (slice >= plan_.slices()) return nothing();
    std::vector<std::vector<ViewPart>> parts;
    parts.reserve(base::narrow<std::size_t>(plan_.chunks()));
    for (int chunk = 0; chunk < plan_.chunks(); ++chunk) {
      parts.push_back({{chunk, plan_.part(block, slice, chunk)}});
    }
    return ring_allgather(*context_.across, context_.workspace,
                          FusedView::of_parts(outputs_, parts), context_.segment, tag_of(block));
  }
  Phase after(std::int64_t block) override {
    if (context_.slots.ranks() == 1) return nothing();
    auto parts = plan_.parts_by_position(block, context_.slots.ranks());
    for (std::vector<ViewPart>& slice : parts) {
      std::erase_if(slice, [this](const ViewPart& part) { return part.chunk == host_; });
    }
    return in_host_allgather(context_.slots, FusedView::of_parts(outputs_, parts), context_.tuning);
  }

  const TwoLevelContext context_;
  const std::int32_t host_;
  const FusedView blocks_;   // chunk r is the block of rank r
  const FusedView outputs_;  // chunk h has the blocks of host h's ranks, in the outputs
  const BlockPlan plan_;
};

class TwoLevelBarrier final : public TwoLevelPhases {
 public:
  TwoLevelBarrier(const TwoLevelContext& context, int first_tag)
      : TwoLevelPhases(1, first_tag, context.slots.times()), context_(context) {}

 private:
  Phase before(std::int64_t /*block*/) override { return in_host_barrier(context_.slots); }
  Phase across(std::int64_t block) override {
    return context_.slots.rank() == 0 ? barrier(*context_.across, tag_of(block)) : nothing();
  }
  Phase after(std::int64_t /*block*/) override { return in_host_barrier(context_.slots); }

  const TwoLevelContext context_;
};

}  // namespace

std::unique_ptr<Collective> two_level_broadcast(const TwoLevelContext& context, Transport& all,
                                                FusedView view, std::int32_t root, int first_tag) {
  base::check_eq(view.chunks(), 1, "two_level_broadcast: one chunk");
  BlockPlan plan(view, 1, context.block);
  return std::make_unique<TwoLevelBroadcast>(context, all, std::move(view), root, std::move(plan),
                                             first_tag);
}

std::unique_ptr<Collective> two_level_allgather(const TwoLevelContext& context, base::DType dtype,
                                                const std::vector<base::TensorView>& blocks,
                                                int first_tag) {
  const JobShape& shape = context.shape;
  FusedView all = FusedView::of_chunks(dtype, blocks);
  base::check_eq(all.chunks(), shape.ranks(), "two_level_allgather: a block of each rank");
  const FusedView hosts = by_host(shape, all);
  BlockPlan plan(hosts, slices_for(hosts.bytes(), shape), context.block);
  return std::make_unique<TwoLevelAllgather>(context, std::move(all), hosts, std::move(plan),
                                             first_tag);
}

std::unique_ptr<Collective> two_level_barrier(const TwoLevelContext& context, int first_tag) {
  return std::make_unique<TwoLevelBarrier>(context, first_tag);
}

}  // namespace ronde::collectives
