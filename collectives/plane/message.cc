// SPDX-License-Identifier: Apache-2.0
#include "collectives/plane/message.h"

#include <memory>
#include <utility>

#include "collectives/messages/barrier.h"
#include "collectives/messages/broadcast.h"
#include "collectives/messages/ring.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

using base::Status;
using fusion::FusedView;

// `on_board` makes no difference, since messages copy every tensor.
DataPlane::CollectivePtr MessagePlane::allreduce(const Views& tensors, const Reduction& reduction,
                                                 bool /*on_board*/, std::uint64_t sequence) {
  const int ranks = transport_.size();
  return allreduce_between(algorithm_, transport_, workspace_, FusedView(tensors, ranks), reduction,
                           ranks, segment_, first_tag(sequence));
}

DataPlane::CollectivePtr MessagePlane::broadcast(const Views& tensors, std::int32_t root,
                                                 std::uint64_t sequence) {
  return collectives::broadcast(transport_, workspace_, FusedView(tensors, 1), root, segment_,
                                first_tag(sequence));
}

DataPlane::CollectivePtr MessagePlane::allgather(base::DType dtype, const Views& blocks,
                                                 std::uint64_t sequence) {
  return ring_allgather(transport_, workspace_, FusedView::of_chunks(dtype, blocks), segment_,
                        first_tag(sequence));
}

DataPlane::CollectivePtr MessagePlane::reduce_scatter(const Views& blocks,
                                                      const Reduction& reduction,
                                                      std::uint64_t sequence) {
  return ring_reduce_scatter(transport_, workspace_, FusedView::of_chunks(reduction.dtype, blocks),
                             reduction, transport_.size(), segment_, first_tag(sequence));
}

DataPlane::CollectivePtr MessagePlane::all_to_all(RowsToSend send, AllocateRows allocate,
                                                  std::uint64_t sequence) {
  return collectives::all_to_all(transport_, workspace_, std::move(send), std::move(allocate),
                                 segment_, first_tag(sequence));
}

DataPlane::CollectivePtr MessagePlane::barrier(std::uint64_t sequence) {
  return collectives::barrier(transport_, first_tag(sequence));
}

Status MessagePlane::tune(const base::Config& /*config*/, const std::function<Status()>& /*idle*/) {
  return {};
}

void MessagePlane::want_rings(bool /*wanted*/) {}  // the agent polls, or messages ring

std::string MessagePlane::description() const {
  const std::string name(name_of(algorithm_));
  return "the " + name + ", as RONDE_ALGORITHM=" + name + " asks; every rank counts as a host";
}

int MessagePlane::first_tag(std::uint64_t sequence) {
  constexpr std::uint64_t kTagBlocks = 1024;
  return base::narrow<int>(sequence % kTagBlocks) * kTagsPerCollective;
}

std::unique_ptr<DataPlane> make_message_plane(Transport& transport, Workspace& workspace,
                                              base::Bytes segment, Algorithm algorithm) {
  return std::make_unique<MessagePlane>(transport, workspace, algorithm, segment);
}

}  // namespace ronde::collectives
