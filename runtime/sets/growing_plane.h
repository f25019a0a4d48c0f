// SPDX-License-Identifier: Apache-2.0
// A data plane over small slots, until a tensor comes that is larger than they are: then, and from
// then on, one over large slots, which the leader of the host makes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/config.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "collectives/plane/plane.h"
#include "runtime/job/job.h"

namespace ronde::runtime {

// All ranks of a host grow at the same exchange, because they see the same sizes.
//
// Thread safety: used by the agent alone.
class GrowingPlane final : public collectives::DataPlane {
 public:
  using MakePlane =
      std::function<std::unique_ptr<collectives::DataPlane>(const collectives::Board& board)>;
  // The configuration must outlive it.
  GrowingPlane(collectives::Board board, SlotGrowth growth, const base::Config& config,
               MakePlane make_plane);

  base::Result<CollectivePtr> make(const collectives::Exchange& exchange) override;
  base::Status tune(const base::Config& config, const std::function<base::Status()>& idle) override;
  void want_rings(bool wanted) override;
  [[nodiscard]] std::string description() const override { return plane_->description(); }

 private:
  class AfterGrowth;

  [[nodiscard]] bool outgrown_by(const collectives::Exchange& exchange) const;
  base::Status grow(std::int64_t place);

  const collectives::Board board_;
  const SlotGrowth growth_;
  const base::Config& config_;
  const MakePlane make_plane_;
  std::unique_ptr<collectives::DataPlane> plane_;
  bool grown_ = false;
  bool wants_rings_ = false;
};

}  // namespace ronde::runtime
