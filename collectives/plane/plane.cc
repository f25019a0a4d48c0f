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

using base::Operation;
using base::Status;
using fusion::FusedView;

class InHostPlane final : public DataPlane {
 public:
  InHostPlane(const Board& board, bool probe) : slots_(board, probe) {}

  base::Result<CollectivePtr> make(const Exchange& exchange) override {
    switch (exchange.operation) {
      case Operation::kAllreduce:
        if (exchange.on_board && fits_in_place(slots(), exchange.tensors.size())) {
          return in_host_allreduce_in_place(slots(), exchange.tensors, exchange.how);
        }
        return in_host_allreduce(slots(), FusedView(exchange.tensors, 1), exchange.how, tuning());
      case Operation::kBroadcast:
        return in_host_broadcast(slots(), FusedView(exchange.tensors, 1), exchange.root, tuning());
      case Operation::kAllgather: {
        if (exchange.on_board) {
          RONDE_ASSIGN_OR_RETURN(auto blocks, blocks_of(exchange, slots().rank()));
          return in_host_allgather_in_place(slots(), std::move(blocks));
        }
        RONDE_ASSIGN_OR_RETURN(auto blocks, chunks_of(exchange, slots().rank()));
        return in_host_allgather(slots(), std::move(blocks), tuning());
      }
      case Operation::kReduceScatter: {
        if (exchange.on_board) {
          RONDE_ASSIGN_OR_RETURN(const auto blocks, blocks_of(exchange, slots().rank()));
          return in_host_reduce_scatter_in_place(slots(), blocks, exchange.how);
        }
        RONDE_ASSIGN_OR_RETURN(auto blocks, chunks_of(exchange, slots().rank()));
        return in_host_reduce_scatter(slots(), std::move(blocks), exchange.how, tuning());
      }
      case Operation::kAllToAll:
        return in_host_all_to_all(slots(), exchange.rows_to_send(), exchange.result, tuning());
      case Operation::kBarrier:
      case Operation::kDeviceBarrier:
        break;
    }
    return in_host_barrier(slots());
  }

  void want_rings(bool wanted) override { slots().want_rings(wanted); }
  BatchTimes* times() override { return &slots().times(); }
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
