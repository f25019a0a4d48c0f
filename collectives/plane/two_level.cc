// SPDX-License-Identifier: Apache-2.0
// The data plane of a job on several hosts.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "collectives/messages/choose.h"
#include "collectives/messages/segment_plan.h"
#include "collectives/plane/message.h"
#include "collectives/plane/plane.h"
#include "collectives/plane/tuned_slots.h"
#include "collectives/two_level/allreduce.h"
#include "collectives/two_level/moves.h"
#include "collectives/two_level/reduce_scatter.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

namespace {

using base::JobShape;
using base::Operation;
using base::Status;

// Returns the ranks of all hosts at one position, in the order of the hosts.
std::vector<int> ranks_at(const JobShape& shape, std::int32_t position) {
  std::vector<int> members;
  members.reserve(base::narrow<std::size_t>(shape.hosts()));
  for (std::int32_t host = 0; host < shape.hosts(); ++host) {
    members.push_back(shape.ranks_of(host)[base::narrow<std::size_t>(position)]);
  }
  return members;
}

class TwoLevelPlane final : public MessagePlane {
 public:
  TwoLevelPlane(const Board& board, bool probe, JobShape shape, Transport& transport,
                Workspace& workspace, const base::Config& config, base::Bytes block)
      // MessagePlane makes no allreduce here, and so any algorithm will do.
      : MessagePlane(transport, workspace, algorithms().back(),
                     std::min(config.segment_bytes, base::Bytes(kMessageBytes))),
        shape_(std::move(shape)),
        slots_(board, probe),
        algorithm_(algorithm_of(config.algorithm)),
        block_(block.value() > 0 ? block : default_block(shape_)) {
    base::check_eq(shape_.ranks(), transport.size(), "TwoLevelPlane: the shape has all ranks");
    const std::int32_t position = shape_.position_of(transport.rank());
    base::check_eq(position, board.rank(), "TwoLevelPlane: the board is that of this host");
    if (shape_.ranks() > shape_.hosts() && position < shape_.slices()) {
      group_.emplace(transport, ranks_at(shape_, position));
    }
  }

  base::Result<CollectivePtr> make(const Exchange& exchange) override {
    const int tag = first_tag(exchange.sequence);
    switch (exchange.operation) {
      case Operation::kAllreduce:
        return two_level_allreduce(context(), exchange.tensors, exchange.how, tag);
      case Operation::kBroadcast:
        return two_level_broadcast(context(), transport(), fusion::FusedView(exchange.tensors, 1),
                                   exchange.root, tag);
      case Operation::kAllgather: {
        RONDE_ASSIGN_OR_RETURN(const auto blocks, blocks_of(exchange, transport().rank()));
        return two_level_allgather(context(), exchange.how.dtype, blocks, tag);
      }
      case Operation::kReduceScatter: {
        RONDE_ASSIGN_OR_RETURN(const auto blocks, blocks_of(exchange, transport().rank()));
        return two_level_reduce_scatter(context(), blocks, exchange.how, tag);
      }
      case Operation::kAllToAll:  // its blocks pass between all ranks, even inside a host
        return MessagePlane::make(exchange);
      case Operation::kBarrier:
      case Operation::kDeviceBarrier:
        break;
    }
    return two_level_barrier(context(), tag);
  }

  Status tune(const base::Config& config, const std::function<Status()>& idle) override {
    return slots_.tune(config, idle);
  }
  void want_rings(bool wanted) override { slots_.slots().want_rings(wanted); }
  BatchTimes* times() override { return &slots_.slots().times(); }

  [[nodiscard]] std::string description() const override {
    const bool alone = shape_.ranks() == shape_.hosts();
    return "hosts: " + choice_text(algorithm_, shape_.hosts()) + "; " + shape_.text() +
           (alone ? "" : "; " + slots_.text());
  }

 private:
  [[nodiscard]] TwoLevelContext context() {
    return {.shape = shape_,
            .rank = transport().rank(),
            .slots = slots_.slots(),
            .across = across(),
            .workspace = workspace(),
            .tuning = slots_.tuning(),
            .algorithm = algorithm_,
            .segment = segment(),
            .block = block_};
  }
  // The transport to the ranks of the other hosts that share this rank's slice; nullptr for a rank
  // without a slice.
  [[nodiscard]] Transport* across() {
    if (group_) return &*group_;
    return shape_.ranks() == shape_.hosts() ? &transport() : nullptr;
  }

  const JobShape shape_;
  TunedSlots slots_;
  const Algorithm* const algorithm_;
  const base::Bytes block_;
  std::optional<Transport> group_;
};

}  // namespace

std::unique_ptr<DataPlane> make_two_level_plane(const Board& board, bool probe,
                                                const JobShape& shape, Transport& transport,
                                                Workspace& workspace, const base::Config& config,
                                                base::Bytes block) {
  return std::make_unique<TwoLevelPlane>(board, probe, shape, transport, workspace, config, block);
}

}  // namespace ronde::collectives
