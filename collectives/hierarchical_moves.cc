// SPDX-License-Identifier: Apache-2.0
#include "collectives/hierarchical_moves.h"

#include <optional>
#include <utility>

#include "base/check.h"
#include "collectives/barrier.h"
#include "collectives/block_plan.h"
#include "collectives/broadcast.h"
#include "collectives/group_transport.h"
#include "collectives/host_moves.h"
#include "collectives/host_stages.h"
#include "collectives/ring.h"

namespace ronde::collectives {
namespace {

using fusion::FusedView;
using fusion::ViewPart;

// Who speaks for a host when `root` gives: itself, and elsewhere the leader.
std::int32_t speaker_of(const JobShape& shape, std::int32_t host, std::int32_t root) {
  return shape.host_of(root) == host ? root : shape.leader_of(host);
}

std::vector<int> speakers(const JobShape& shape, std::int32_t root) {
  std::vector<int> members;
  members.reserve(base::narrow<std::size_t>(shape.hosts()));
  for (std::int32_t host = 0; host < shape.hosts(); ++host) {
    members.push_back(speaker_of(shape, host, root));
  }
  return members;
}

// B brings a block to each host's speaker, and C from there to the host.
class HierarchicalBroadcast final : public HostStages {
 public:
  HierarchicalBroadcast(const HostsJob& job, Transport& all, FusedView view, std::int32_t root,
                        BlockPlan plan, int first_tag)
      : HostStages(plan.blocks(), first_tag),
        job_(job),
        view_(std::move(view)),
        plan_(std::move(plan)),
        root_(root),
        speaker_(speaker_of(job.shape, job.shape.host_of(job.rank), root)) {
    if (speaker_ == job.rank) between_.emplace(all, speakers(job.shape, root));
  }

 private:
  Stage before(std::int64_t /*block*/) override { return nothing(); }
  Stage across(std::int64_t block) override {
    if (!between_) return nothing();
    return broadcast(*between_, job_.workspace, part(block), job_.shape.host_of(root_),
                     job_.segment, tag_of(block));
  }
  Stage after(std::int64_t block) override {
    if (job_.slots.ranks() == 1) return nothing();
    const bool passes_on = job_.rank == speaker_ && job_.rank != root_;
    return host_broadcast(job_.slots,
                          passes_on ? part(block).with_outputs_as_inputs() : part(block),
                          job_.shape.position_of(speaker_), job_.tuning);
  }
  [[nodiscard]] FusedView part(std::int64_t block) const {
    return FusedView::of_parts(view_, {plan_.parts(block, 0)});
  }

  const HostsJob job_;
  const FusedView view_;
  const BlockPlan plan_;
  const std::int32_t root_;
  const std::int32_t speaker_;
  std::optional<GroupTransport> between_;
};

// What the ranks of each host give, one after another, is a chunk. With the first block, A brings
// what this host gives into all outputs here; from there B takes it, and C what came.
class HierarchicalAllgather final : public HostStages {
 public:
  HierarchicalAllgather(const HostsJob& job, FusedView blocks, const FusedView& hosts,
                        BlockPlan plan, int first_tag)
      : HostStages(plan.blocks(), first_tag),
        job_(job),
        host_(job.shape.host_of(job.rank)),
        blocks_(std::move(blocks)),
        outputs_(hosts.with_outputs_as_inputs()),
        plan_(std::move(plan)) {}

 private:
  Stage before(std::int64_t block) override {
    if (block > 0) return nothing();
    std::vector<std::vector<ViewPart>> here;
    for (const std::int32_t rank : job_.shape.ranks_of(host_)) {
      here.push_back({{rank, {0, blocks_.chunk_bytes(rank).value()}}});
    }
    return host_allgather(job_.slots, FusedView::of_parts(blocks_, here), job_.tuning);
  }
  Stage across(std::int64_t block) override {
    const std::int32_t slice = job_.slots.rank();
    if (slice >= plan_.slices()) return nothing();
    std::vector<std::vector<ViewPart>> parts;
    parts.reserve(base::narrow<std::size_t>(plan_.chunks()));
    for (int chunk = 0; chunk < plan_.chunks(); ++chunk) {
      parts.push_back({{chunk, plan_.part(block, slice, chunk)}});
    }
    return ring_allgather(*job_.across, job_.workspace, FusedView::of_parts(outputs_, parts),
                          job_.segment, tag_of(block));
  }
  Stage after(std::int64_t block) override {
    if (job_.slots.ranks() == 1) return nothing();
    auto parts = plan_.parts_by_position(block, job_.slots.ranks());
    for (std::vector<ViewPart>& slice : parts) {
      std::erase_if(slice, [this](const ViewPart& part) { return part.chunk == host_; });
    }
    return host_allgather(job_.slots, FusedView::of_parts(outputs_, parts), job_.tuning);
  }

  const HostsJob job_;
  const std::int32_t host_;
  const FusedView blocks_;   // chunk r is what rank r gives
  const FusedView outputs_;  // chunk h is what host h gives, where it arrives
  const BlockPlan plan_;
};

class HierarchicalBarrier final : public HostStages {
 public:
  HierarchicalBarrier(const HostsJob& job, int first_tag) : HostStages(1, first_tag), job_(job) {}

 private:
  Stage before(std::int64_t /*block*/) override { return host_barrier(job_.slots); }
  Stage across(std::int64_t block) override {
    return job_.slots.rank() == 0 ? barrier(*job_.across, tag_of(block)) : nothing();
  }
  Stage after(std::int64_t /*block*/) override { return host_barrier(job_.slots); }

  const HostsJob job_;
};

}  // namespace

std::unique_ptr<Collective> hierarchical_broadcast(const HostsJob& job, Transport& all,
                                                   FusedView view, std::int32_t root,
                                                   int first_tag) {
  base::check_eq(view.chunks(), 1, "hierarchical_broadcast: one chunk");
  BlockPlan plan(view, 1, job.block);
  return std::make_unique<HierarchicalBroadcast>(job, all, std::move(view), root, std::move(plan),
                                                 first_tag);
}

std::unique_ptr<Collective> hierarchical_allgather(const HostsJob& job, base::DType dtype,
                                                   const std::vector<base::TensorView>& blocks,
                                                   int first_tag) {
  const JobShape& shape = job.shape;
  FusedView all = FusedView::of_chunks(dtype, blocks);
  base::check_eq(all.chunks(), shape.ranks(), "hierarchical_allgather: a block of each rank");
  const FusedView hosts = by_host(shape, all);
  BlockPlan plan(hosts, slices_for(hosts.bytes(), shape), job.block);
  return std::make_unique<HierarchicalAllgather>(job, std::move(all), hosts, std::move(plan),
                                                 first_tag);
}

std::unique_ptr<Collective> hierarchical_barrier(const HostsJob& job, int first_tag) {
  return std::make_unique<HierarchicalBarrier>(job, first_tag);
}

}  // namespace ronde::collectives
