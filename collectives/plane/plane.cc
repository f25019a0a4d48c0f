// SPDX-License-Identifier: Apache-2.0
// The data plane of a job on one host.
#include "collectives/plane/plane.h"

#include <string>
#include <utility>

#include "collectives/in_host/all_to_all.h"
#include "collectives/in_host/allreduce.h"
#include "collectives/in_host/in_place.h"
#include "collectives/in_host/moves.h"
#include "collectives/in_host/reduce_scatter.h"
#include "collectives/plane/tuned_slots.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

namespace {

using base::Status;
using fusion::FusedView;

class InHostPlane final : public DataPlane {
 public:
  InHostPlane(const Board& board, bool probe) : slots_(board, probe) {}

  CollectivePtr allreduce(const Views& tensors, const Reduction& reduction, bool on_board,
                          std::uint64_t /*sequence*/) override {
    if (on_board && fits_in_place(slots(), tensors.size())) {
      return in_host_allreduce_in_place(slots(), tensors, reduction);
    }
    return in_host_allreduce(slots(), FusedView(tensors, 1), reduction, tuning());
  }
  CollectivePtr broadcast(const Views& tensors, std::int32_t root,
                          std::uint64_t /*sequence*/) override {
    return in_host_broadcast(slots(), FusedView(tensors, 1), root, tuning());
  }
  CollectivePtr allgather(base::DType dtype, const Views& blocks,
                          std::uint64_t /*sequence*/) override {
    return in_host_allgather(slots(), FusedView::of_chunks(dtype, blocks), tuning());
  }
  CollectivePtr reduce_scatter(const Views& blocks, const Reduction& reduction,
                               std::uint64_t /*sequence*/) override {
    return in_host_reduce_scatter(slots(), FusedView::of_chunks(reduction.dtype, blocks), reduction,
                                  tuning());
  }
  CollectivePtr all_to_all(RowsToSend send, AllocateRows allocate,
                           std::uint64_t /*sequence*/) override {
    return in_host_all_to_all(slots(), std::move(send), std::move(allocate), tuning());
  }
  CollectivePtr barrier(std::uint64_t /*sequence*/) override { return in_host_barrier(slots()); }

  void want_rings(bool wanted) override { slots().want_rings(wanted); }
  Status tune(const base::Config& config, const std::function<Status()>& idle) override {
    return slots_.tune(config, idle);
  }

  [[nodiscard]] std::string description() const override {
    return "the board, since all ranks share this host; " + slots_.text();
  }

 private:
  [[nodiscard]] Slots& slots() { return slots_.slots(); }
  [[nodiscard]] const SlotTuning& tuning() const { return slots_.tuning(); }

  TunedSlots slots_;
};

}  // namespace

std::unique_ptr<DataPlane> make_in_host_plane(const Board& board, bool probe) {
  return std::make_unique<InHostPlane>(board, probe);
}

}  // namespace ronde::collectives
