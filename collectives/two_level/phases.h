// SPDX-License-Identifier: Apache-2.0
// The base of the collectives over several hosts, which work on a vector in blocks, and on each
// block in three phases.
//
//   A   among the ranks of a host, over the slots of its board
//   B   between hosts, as messages
//   C   among the ranks of a host again
//
// Phases that use the slots must come in one order on all ranks of a host: A0 A1 A2 C0 A3 C1 A4 C2
// ... Phase B of up to three blocks runs beside them, so that the link does not wait for the
// memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "collectives/transport/batch_times.h"
#include "collectives/transport/collective.h"

namespace ronde::collectives {

// It owns the collectives of the phases that have begun.
//
// Thread safety: one thread at a time (whoever has the agent's role).
class TwoLevelPhases : public Collective {
 public:
  base::Result<StepResult> step() final;

 protected:
  using Phase = base::Result<std::unique_ptr<Collective>>;

  // At most this many blocks are between the beginning of A and the end of C.
  static constexpr std::int64_t kBlocks = 3;

  // times: of the batch; the caller keeps them.
  TwoLevelPhases(std::int64_t blocks, int first_tag, BatchTimes& times)
      : count_(blocks), first_tag_(first_tag), times_(times) {}

  // These make the collectives of A, B and C. step() calls them in the order above, each when the
  // phase before it has finished. A and C may return nothing() on all ranks of a host or on none.
  // Phases that have not finished are destroyed after the members of the derived class, and must
  // not touch them then.
  virtual Phase before(std::int64_t block) = 0;
  virtual Phase across(std::int64_t block) = 0;
  virtual Phase after(std::int64_t block) = 0;

  [[nodiscard]] static Phase nothing() { return std::unique_ptr<Collective>(); }

  // The first of the kSegmentsInFlight tags for phase B of a block.
  [[nodiscard]] int tag_of(std::int64_t block) const;

 private:
  [[nodiscard]] std::unique_ptr<Collective>& across_of(std::int64_t block) {
    return across_[static_cast<std::size_t>(block % kBlocks)];
  }
  // Phase A runs as far ahead as there is room for blocks; otherwise phase C is next.
  [[nodiscard]] bool next_is_before() const {
    return before_ < count_ && before_ < after_ + kBlocks;
  }

  // Each returns whether something happened.
  base::Result<bool> step_across();
  base::Result<bool> step_in_host();
  base::Result<bool> begin_in_host();
  base::Status end_in_host();

  const std::int64_t count_;
  const int first_tag_;
  BatchTimes& times_;
  std::array<std::unique_ptr<Collective>, kBlocks> across_;
  std::unique_ptr<Collective> in_host_;
  std::int64_t before_ = 0;  // blocks whose A has finished
  std::int64_t after_ = 0;   // blocks whose C has finished
};

}  // namespace ronde::collectives
