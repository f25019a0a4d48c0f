// SPDX-License-Identifier: Apache-2.0
#include "runtime/sets/growing_plane.h"

#include <utility>

#include "base/dtype.h"

namespace ronde::runtime {

using base::Result;
using base::Status;
using collectives::Exchange;
using collectives::StepResult;

// The collective of the exchange that is too large: it begins when the leader has made the slots.
class GrowingPlane::AfterGrowth final : public collectives::Collective {
 public:
  AfterGrowth(GrowingPlane& plane, Exchange exchange)
      : plane_(plane), exchange_(std::move(exchange)) {}

  Result<StepResult> step() override {
    if (collective_ != nullptr) return collective_->step();
    const auto place = plane_.board_.larger();
    if (!place) return StepResult::kIdle;
    RONDE_RETURN_IF_ERROR(plane_.grow(*place));
    RONDE_ASSIGN_OR_RETURN(collective_, plane_.plane_->make(exchange_));
    return StepResult::kProgress;
  }

 private:
  GrowingPlane& plane_;
  const Exchange exchange_;
  CollectivePtr collective_;
};

GrowingPlane::GrowingPlane(collectives::Board board, SlotGrowth growth, const base::Config& config,
                           MakePlane make_plane)
    : board_(std::move(board)),
      growth_(std::move(growth)),
      config_(config),
      make_plane_(std::move(make_plane)),
      plane_(make_plane_(board_)) {}

// Where each rank alone knows its rows nothing grows: the others could not tell.
bool GrowingPlane::outgrown_by(const Exchange& exchange) const {
  if (exchange.what().is_barrier() || exchange.what().has_own_rows()) return false;
  std::int64_t bytes = exchange.bytes().value();
  if (exchange.what().makes_result()) {
    bytes = 0;
    for (const std::int64_t rows : exchange.rows) {
      bytes += rows * exchange.row.value() * base::size_of(exchange.how.dtype);
    }
  }
  return bytes > growth_.most.value();
}

Result<GrowingPlane::CollectivePtr> GrowingPlane::make(const Exchange& exchange) {
  if (grown_ || !outgrown_by(exchange)) return plane_->make(exchange);
  grown_ = true;
  if (board_.rank() == 0) {
    const auto place = growth_.make();
    board_.publish_larger(place.ok() ? *place : -1);  // without room the small ones do
  }
  return CollectivePtr(std::make_unique<AfterGrowth>(*this, exchange));
}

Status GrowingPlane::grow(std::int64_t place) {
  if (place < 0) return {};
  RONDE_ASSIGN_OR_RETURN(const auto board, growth_.board_at(place));
  plane_ = make_plane_(board);
  RONDE_RETURN_IF_ERROR(plane_->tune(config_, [] { return Status(); }));
  if (wants_rings_) plane_->want_rings(true);
  return {};
}

Status GrowingPlane::tune(const base::Config& config, const std::function<Status()>& idle) {
  return plane_->tune(config, idle);
}

void GrowingPlane::want_rings(bool wanted) {
  wants_rings_ = wanted;
  plane_->want_rings(wanted);
}

}  // namespace ronde::runtime
