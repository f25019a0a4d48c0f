// SPDX-License-Identifier: Apache-2.0
// The data plane of several hosts: see data_plane.h.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "collectives/between_hosts.h"
#include "collectives/group_transport.h"
#include "collectives/hierarchical_allreduce.h"
#include "collectives/hierarchical_moves.h"
#include "collectives/hierarchical_reduce_scatter.h"
#include "collectives/segment_plan.h"
#include "fusion/fused_view.h"
#include "runtime/data_plane.h"
#include "runtime/message_plane.h"
#include "runtime/tuned_slots.h"

namespace ronde::runtime {

namespace {

using base::Status;
using collectives::Algorithm;
using collectives::JobShape;
using collectives::Reduction;
using fusion::FusedView;

// The ranks of all hosts at one position, in the order of the hosts.
std::vector<int> ranks_at(const JobShape& shape, std::int32_t position) {
  std::vector<int> members;
  members.reserve(base::narrow<std::size_t>(shape.hosts()));
  for (std::int32_t host = 0; host < shape.hosts(); ++host) {
    members.push_back(shape.ranks_of(host)[base::narrow<std::size_t>(position)]);
  }
  return members;
}

// An all-to-all passes between all ranks as messages, whichever host they are on.
class HostsPlane final : public MessagePlane {
 public:
  HostsPlane(const collectives::Board& board, bool probe, JobShape shape,
             collectives::Transport& transport, collectives::Workspace& workspace,
             const base::Config& config)
      : MessagePlane(transport, workspace, Algorithm::kRing,
                     std::min(config.segment_bytes, base::Bytes(collectives::kMessageBytes))),
        shape_(std::move(shape)),
        slots_(board, probe),
        algorithm_(collectives::algorithm_of(config.algorithm)) {
    base::check_eq(shape_.ranks(), transport.size(), "HostsPlane: the shape has all ranks");
    const std::int32_t position = shape_.position_of(transport.rank());
    base::check_eq(position, board.rank(), "HostsPlane: the board is that of this host");
    if (shape_.ranks() > shape_.hosts() && position < shape_.slices()) {
      group_.emplace(transport, ranks_at(shape_, position));
    }
  }

  CollectivePtr allreduce(const Views& tensors, const Reduction& reduction, bool /*on_board*/,
                          std::uint64_t sequence) override {
    return collectives::hierarchical_allreduce(job(), tensors, reduction, first_tag(sequence));
  }
  CollectivePtr broadcast(const Views& tensors, std::int32_t root,
                          std::uint64_t sequence) override {
    return collectives::hierarchical_broadcast(job(), transport(), FusedView(tensors, 1), root,
                                               first_tag(sequence));
  }
  CollectivePtr allgather(base::DType dtype, const Views& blocks, std::uint64_t sequence) override {
    return collectives::hierarchical_allgather(job(), dtype, blocks, first_tag(sequence));
  }
  CollectivePtr reduce_scatter(const Views& blocks, const Reduction& reduction,
                               std::uint64_t sequence) override {
    return collectives::hierarchical_reduce_scatter(job(), blocks, reduction, first_tag(sequence));
  }
  CollectivePtr barrier(std::uint64_t sequence) override {
    return collectives::hierarchical_barrier(job(), first_tag(sequence));
  }

  Status tune(const base::Config& config, const std::function<Status()>& idle) override {
    return slots_.tune(config, idle);
  }
  void want_rings(bool wanted) override { slots_.slots().want_rings(wanted); }

  [[nodiscard]] std::string description() const override {
    const bool alone = shape_.ranks() == shape_.hosts();
    return "hosts: " + between() + "; " + shape_.text() + (alone ? "" : "; " + slots_.text());
  }

 private:
  [[nodiscard]] collectives::HostsJob job() {
    return {.shape = shape_,
            .rank = transport().rank(),
            .slots = slots_.slots(),
            .across = across(),
            .workspace = workspace(),
            .tuning = slots_.tuning(),
            .algorithm = algorithm_,
            .segment = segment(),
            .block = collectives::default_block(shape_)};
  }
  // The ranks of the other hosts that this one talks to; nobody for the ranks without a slice.
  [[nodiscard]] collectives::Transport* across() {
    if (group_) return &*group_;
    return shape_.ranks() == shape_.hosts() ? &transport() : nullptr;
  }
  [[nodiscard]] std::string between() const {
    if (algorithm_) {
      const std::string name(collectives::name_of(*algorithm_));
      return "the " + name + ", as RONDE_ALGORITHM=" + name + " asks";
    }
    const collectives::AlgorithmLimits limits = collectives::limits_for(shape_.hosts());
    std::string text = "gather up to " + std::to_string(limits.gather.value()) + " bytes";
    if (limits.direct.value() > 0) {
      text += ", direct up to " + std::to_string(limits.direct.value());
    }
    return text + ", the ring above";
  }

  const JobShape shape_;
  TunedSlots slots_;
  const std::optional<Algorithm> algorithm_;
  std::optional<collectives::GroupTransport> group_;
};

}  // namespace

std::unique_ptr<DataPlane> make_hosts_plane(const collectives::Board& board, bool probe,
                                            const collectives::JobShape& shape,
                                            collectives::Transport& transport,
                                            collectives::Workspace& workspace,
                                            const base::Config& config) {
  return std::make_unique<HostsPlane>(board, probe, shape, transport, workspace, config);
}

}  // namespace ronde::runtime
