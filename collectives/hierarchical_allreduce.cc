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
#include "collectives/segment_plan.h"

namespace ronde::collectives {
namespace {

using base::Bytes;
using base::Result;
using base::Status;
using fusion::FusedView;

// Blocks between the beginning of A and the end of C.
constexpr std::int64_t kBlocks = 3;
static_assert((kBlocks + 1) * kSegmentsInFlight <= kTagsPerCollective, "each block has its tags");

// A slice of a block: a few segments of every chunk, where there are not too many hosts.
constexpr std::int64_t kBlockBytes = 1 << 20;
constexpr std::int64_t kSmallestPartBytes = 64 << 10;

// Below this a message costs as much as what is in it.
constexpr std::int64_t kSmallestSliceBytes = 4 << 10;

Bytes block_for(std::int32_t hosts) {
  return Bytes(std::max(kBlockBytes, hosts * kSmallestPartBytes));
}

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

class HierarchicalAllreduce final : public Collective {
 public:
  HierarchicalAllreduce(const HostsJob& job, FusedView view, const Reduction& reduction,
                        int first_tag)
      : job_(job),
        view_(std::move(view)),
        reduction_(reduction),
        first_tag_(first_tag),
        algorithm_(
            job.algorithm.value_or(choose_algorithm(on_wire(view_, reduction), job.shape.hosts()))),
        plan_(view_, slices_for(on_wire(view_, reduction), job.shape),
              job.block.value_or(block_for(job.shape.hosts()))),
        memory_(job.workspace) {}

  Result<StepResult> step() override;

 private:
  struct Block {
    FusedView whole{{}, 1};  // by position: its slice, in the user's memory
    std::unique_ptr<Collective> across;
  };

  [[nodiscard]] bool drives() const { return job_.slots.rank() < plan_.slices(); }
  [[nodiscard]] Block& block(std::int64_t number) {
    return blocks_[static_cast<std::size_t>(number % kBlocks)];
  }
  [[nodiscard]] std::byte* memory_of(std::int64_t block) const {
    return drives() ? memory_.memory() + block % kBlocks * plan_.slice_bytes().value() : nullptr;
  }
  // The order of the stages in a host: A as far ahead as there are blocks, otherwise C.
  [[nodiscard]] bool next_is_sum() const {
    return summed_ < plan_.blocks() && summed_ < given_ + kBlocks;
  }

  Status open();
  [[nodiscard]] FusedView slices_of(std::int64_t block) const;
  [[nodiscard]] FusedView own_memory(std::int64_t block) const;

  // Each returns whether something happened.
  Result<bool> step_across();
  Result<bool> step_in_host();
  bool begin_in_host();
  void end_in_host();

  const HostsJob job_;
  const FusedView view_;
  const Reduction reduction_;
  const int first_tag_;
  const Algorithm algorithm_;
  const BlockPlan plan_;
  WorkspaceLease memory_;
  bool open_ = false;
  std::array<Block, kBlocks> blocks_{};
  std::unique_ptr<Collective> in_host_;
  std::int64_t summed_ = 0;  // blocks whose A is over
  std::int64_t given_ = 0;   // blocks whose C is over
};

Result<StepResult> HierarchicalAllreduce::step() {
  if (!open_) RONDE_RETURN_IF_ERROR(open());
  const Result<bool> across = step_across();
  RONDE_RETURN_IF_ERROR(across.status());
  const Result<bool> in_host = step_in_host();
  RONDE_RETURN_IF_ERROR(in_host.status());
  if (given_ == plan_.blocks()) return StepResult::kDone;
  return *across || *in_host ? StepResult::kProgress : StepResult::kIdle;
}

Status HierarchicalAllreduce::open() {
  open_ = true;
  if (!drives() || plan_.blocks() == 0) return {};
  base::check(job_.across != nullptr && job_.across->size() == job_.shape.hosts(),
              "hierarchical_allreduce: one rank of each host");
  const std::int64_t blocks = std::min(kBlocks, plan_.blocks());
  RONDE_RETURN_IF_ERROR(memory_.acquire(*job_.across, Bytes(blocks * plan_.slice_bytes().value())));
  memory_.nothing_points_here();  // requests point at the segments of stage B
  return {};
}

FusedView HierarchicalAllreduce::slices_of(std::int64_t block) const {
  std::vector<std::vector<fusion::ViewPart>> parts(base::narrow<std::size_t>(job_.slots.ranks()));
  for (std::int32_t slice = 0; slice < plan_.slices(); ++slice) {
    parts[base::narrow<std::size_t>(slice)] = plan_.parts(block, slice);
  }
  return FusedView::of_parts(view_, parts);
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

Result<bool> HierarchicalAllreduce::step_across() {
  bool any = false;
  for (std::int64_t number = given_; number < summed_; ++number) {
    std::unique_ptr<Collective>& across = block(number).across;
    if (across == nullptr) continue;
    const Result<StepResult> result = across->step();
    RONDE_RETURN_IF_ERROR(result.status());
    any |= *result != StepResult::kIdle;
    if (*result == StepResult::kDone) across.reset();
  }
  return any;
}

Result<bool> HierarchicalAllreduce::step_in_host() {
  if (given_ == plan_.blocks()) return false;
  const bool begins = in_host_ == nullptr;
  if (begins && !begin_in_host()) return false;
  const Result<StepResult> result = in_host_->step();
  RONDE_RETURN_IF_ERROR(result.status());
  if (*result == StepResult::kDone) end_in_host();
  return begins || *result != StepResult::kIdle;
}

// Making a collective of the host takes the next windows of the slots: so only when the one before
// is over.
bool HierarchicalAllreduce::begin_in_host() {
  const std::int32_t me = job_.slots.rank();
  if (next_is_sum()) {
    block(summed_).whole = slices_of(summed_);
    in_host_ =
        host_reduce_scatter(job_.slots, block(summed_).whole.with_output_at(me, memory_of(summed_)),
                            in_host(reduction_), job_.tuning);
    return true;
  }
  if (block(given_).across != nullptr) return false;
  in_host_ = host_allgather(job_.slots, block(given_).whole.with_input_at(me, memory_of(given_)),
                            job_.tuning);
  return true;
}

void HierarchicalAllreduce::end_in_host() {
  in_host_.reset();
  if (!next_is_sum()) {
    ++given_;
    return;
  }
  if (drives()) {
    const std::int64_t tags = summed_ % (kBlocks + 1) * kSegmentsInFlight;
    block(summed_).across = allreduce_between(
        algorithm_, *job_.across, job_.workspace, own_memory(summed_), across_hosts(reduction_),
        job_.shape.ranks(), job_.segment, first_tag_ + base::narrow<int>(tags));
  }
  ++summed_;
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
    return std::make_unique<HierarchicalAllreduce>(job, std::move(view), reduction, first_tag);
  }
  // One rank on every host has nothing to sum before.
  const Algorithm algorithm =
      job.algorithm.value_or(choose_algorithm(on_wire(view, reduction), shape.hosts()));
  return allreduce_between(algorithm, *job.across, job.workspace, std::move(view), reduction,
                           shape.ranks(), job.segment, first_tag);
}

}  // namespace ronde::collectives
