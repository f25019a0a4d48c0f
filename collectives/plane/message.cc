// SPDX-License-Identifier: Apache-2.0
#include "collectives/plane/message.h"

#include <memory>
#include <utility>

#include "collectives/messages/barrier.h"
#include "collectives/messages/broadcast.h"
#include "collectives/messages/ring.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

using base::Operation;
using base::Status;
using fusion::FusedView;

base::Result<DataPlane::CollectivePtr> MessagePlane::make(const Exchange& exchange) {
  const int ranks = transport_.size();
  const int tag = first_tag(exchange.sequence);
  switch (exchange.operation) {
    case Operation::kAllreduce:  // on the board or not: messages copy every tensor
      return algorithm_.allreduce.make(transport_, workspace_, FusedView(exchange.tensors, ranks),
                                       of_rank(exchange.how, transport_.rank()), ranks, segment_,
                                       tag);
    case Operation::kBroadcast:
      return broadcast(transport_, workspace_, FusedView(exchange.tensors, 1), exchange.root,
                       segment_, tag);
    case Operation::kAllgather: {
      RONDE_ASSIGN_OR_RETURN(auto blocks, chunks_of(exchange, transport_.rank()));
      return ring_allgather(transport_, workspace_, std::move(blocks), segment_, tag);
    }
    case Operation::kReduceScatter: {
      RONDE_ASSIGN_OR_RETURN(auto blocks, chunks_of(exchange, transport_.rank()));
      return ring_reduce_scatter(transport_, workspace_, std::move(blocks),
                                 of_rank(exchange.how, transport_.rank()), ranks, segment_, tag);
    }
    case Operation::kAllToAll:
      return all_to_all(transport_, workspace_, exchange.rows_to_send(), exchange.result, segment_,
                        tag);
    case Operation::kBarrier:
    case Operation::kDeviceBarrier:
      break;
  }
  return barrier(transport_, tag);
}

Status MessagePlane::tune(const base::Config& /*config*/, const std::function<Status()>& /*idle*/) {
  return {};
}

void MessagePlane::want_rings(bool /*wanted*/) {}  // the agent polls, or messages ring

std::string MessagePlane::description() const {
  return choice_text(&algorithm_, transport_.size()) + "; every rank counts as a host";
}

int MessagePlane::first_tag(std::uint64_t sequence) const {
  const auto blocks = base::narrow<std::uint64_t>(transport_.tags() / kTagsPerCollective);
  return base::narrow<int>(sequence % blocks) * kTagsPerCollective;
}

std::unique_ptr<DataPlane> make_message_plane(Transport& transport, Workspace& workspace,
                                              base::Bytes segment, const Algorithm& algorithm) {
  return std::make_unique<MessagePlane>(transport, workspace, algorithm, segment);
}

}  // namespace ronde::collectives
