// SPDX-License-Identifier: Apache-2.0
// The two data planes of a host: see data_plane.h.
#include "runtime/data_plane.h"

#include <algorithm>
#include <string>
#include <utility>

#include "collectives/barrier.h"
#include "collectives/broadcast.h"
#include "collectives/host_all_to_all.h"
#include "collectives/host_allreduce.h"
#include "collectives/host_in_place.h"
#include "collectives/host_moves.h"
#include "collectives/host_reduce_scatter.h"
#include "collectives/ring.h"
#include "collectives/slot_probe.h"
#include "collectives/slots.h"
#include "fusion/fused_view.h"

namespace ronde::runtime {

namespace {

using base::Status;
using collectives::Reduction;
using collectives::SlotTuning;
using collectives::StoreKind;
using fusion::FusedView;

class HostPlane final : public DataPlane {
 public:
  HostPlane(const collectives::Board& board, bool probe) : slots_(board), probe_(probe) {}

  CollectivePtr allreduce(const Views& tensors, const Reduction& reduction, bool on_board,
                          std::uint64_t /*sequence*/) override {
    if (on_board && collectives::fits_in_place(slots_, tensors.size())) {
      return collectives::host_in_place(slots_, tensors, reduction);
    }
    return collectives::host_allreduce(slots_, FusedView(tensors, 1), reduction, tuning_);
  }
  CollectivePtr broadcast(const Views& tensors, std::int32_t root,
                          std::uint64_t /*sequence*/) override {
    return collectives::host_broadcast(slots_, FusedView(tensors, 1), root, tuning_);
  }
  CollectivePtr allgather(base::DType dtype, const Views& blocks,
                          std::uint64_t /*sequence*/) override {
    return collectives::host_allgather(slots_, FusedView::of_chunks(dtype, blocks), tuning_);
  }
  CollectivePtr reduce_scatter(const Views& blocks, const Reduction& reduction,
                               std::uint64_t /*sequence*/) override {
    return collectives::host_reduce_scatter(slots_, FusedView::of_chunks(reduction.dtype, blocks),
                                            reduction, tuning_);
  }
  CollectivePtr all_to_all(collectives::RowsToSend send, collectives::AllocateRows allocate,
                           std::uint64_t /*sequence*/) override {
    return collectives::host_all_to_all(slots_, std::move(send), std::move(allocate), tuning_);
  }
  CollectivePtr barrier(std::uint64_t /*sequence*/) override {
    return collectives::host_barrier(slots_);
  }

  void want_rings(bool wanted) override { slots_.want_rings(wanted); }
  Status tune(const base::Config& config, const std::function<Status()>& idle) override {
    const std::vector<SlotTuning> open = candidates(config);
    compared_ = open.size();
    RONDE_RETURN_IF_ERROR(collectives::probe_tuning(slots_, open, idle));
    tuning_ = slots_.board().tuning().value();
    return {};
  }

  [[nodiscard]] std::string description() const override {
    const bool temporal = tuning_.store == collectives::StoreKind::kTemporal;
    return "the board, since all ranks share this host; pieces of at most " +
           std::to_string(tuning_.piece_bytes) + " bytes, " +
           (temporal ? "temporal" : "streaming") + " stores" +
           (compared_ > 1 ? ", the best of " + std::to_string(compared_) + " here" : "");
  }

 private:
  // What the configuration leaves open; without a probe, the first of it.
  [[nodiscard]] std::vector<SlotTuning> candidates(const base::Config& config) const {
    std::vector<SlotTuning> all =
        collectives::tuning_candidates(slots_.ranks(), slots_.buffer_bytes());
    for (SlotTuning& tuning : all) {
      if (config.piece_bytes.value() > 0) tuning.piece_bytes = config.piece_bytes.value();
      if (config.stores == "temporal") tuning.store = StoreKind::kTemporal;
      if (config.stores == "streaming") tuning.store = StoreKind::kStreaming;
    }
    std::vector<SlotTuning> open;
    for (const SlotTuning& tuning : all) {
      if (std::find(open.begin(), open.end(), tuning) == open.end()) open.push_back(tuning);
    }
    if (!probe_ || slots_.ranks() == 1) open.resize(1);
    return open;
  }

  collectives::Slots slots_;
  const bool probe_;
  SlotTuning tuning_;
  std::size_t compared_ = 0;  // tunings; 0 or 1: there was no choice
};

class RingPlane final : public DataPlane {
 public:
  RingPlane(collectives::Transport& transport, collectives::Workspace& workspace,
            base::Bytes segment)
      : transport_(transport), workspace_(workspace), segment_(segment) {}

  // Where a tensor lies makes no difference to messages.
  CollectivePtr allreduce(const Views& tensors, const Reduction& reduction, bool /*on_board*/,
                          std::uint64_t sequence) override {
    return collectives::ring_allreduce(transport_, workspace_,
                                       FusedView(tensors, transport_.size()), reduction,
                                       transport_.size(), segment_, first_tag(sequence));
  }
  CollectivePtr broadcast(const Views& tensors, std::int32_t root,
                          std::uint64_t sequence) override {
    return collectives::broadcast(transport_, workspace_, FusedView(tensors, 1), root, segment_,
                                  first_tag(sequence));
  }
  CollectivePtr allgather(base::DType dtype, const Views& blocks, std::uint64_t sequence) override {
    return collectives::ring_allgather(transport_, workspace_, FusedView::of_chunks(dtype, blocks),
                                       segment_, first_tag(sequence));
  }
  CollectivePtr reduce_scatter(const Views& blocks, const Reduction& reduction,
                               std::uint64_t sequence) override {
    return collectives::ring_reduce_scatter(transport_, workspace_,
                                            FusedView::of_chunks(reduction.dtype, blocks),
                                            reduction, segment_, first_tag(sequence));
  }
  CollectivePtr all_to_all(collectives::RowsToSend send, collectives::AllocateRows allocate,
                           std::uint64_t sequence) override {
    return collectives::all_to_all(transport_, workspace_, std::move(send), std::move(allocate),
                                   segment_, first_tag(sequence));
  }
  CollectivePtr barrier(std::uint64_t sequence) override {
    return collectives::barrier(transport_, first_tag(sequence));
  }

  Status tune(const base::Config& /*config*/, const std::function<Status()>& /*idle*/) override {
    return {};
  }

  void want_rings(bool /*wanted*/) override {}  // it is polled, or messages ring
  [[nodiscard]] std::string description() const override {
    return "the ring, as RONDE_ALGORITHM=ring asks; every rank counts as a host";
  }

 private:
  // Batches that follow each other use different tags, since a rank may be one batch ahead of
  // another.
  static int first_tag(std::uint64_t sequence) {
    constexpr std::uint64_t kTagBlocks = 1024;
    return base::narrow<int>(sequence % kTagBlocks) * collectives::kTagsPerCollective;
  }

  collectives::Transport& transport_;
  collectives::Workspace& workspace_;
  const base::Bytes segment_;
};

}  // namespace

std::unique_ptr<DataPlane> make_host_plane(const collectives::Board& board, bool probe) {
  return std::make_unique<HostPlane>(board, probe);
}

std::unique_ptr<DataPlane> make_ring_plane(collectives::Transport& transport,
                                           collectives::Workspace& workspace, base::Bytes segment) {
  return std::make_unique<RingPlane>(transport, workspace, segment);
}

}  // namespace ronde::runtime
