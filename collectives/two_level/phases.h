// SPDX-License-Identifier: Apache-2.0
// What the collectives of several hosts have in common: a vector that is worked on in blocks, each
// of them in three phases.
//
//   A   among the ranks of a host, over the slots of its board
//   B   between hosts, as messages
//   C   among the ranks of a host again
//
// What happens in the slots must be in one order on all ranks of a host: A0 A1 A2 C0 A3 C1 A4 C2
// ... Phase B of up to three blocks runs beside it, so that the line does not wait for the memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "collectives/transport/collective.h"

namespace ronde::collectives {

// Thread safety: one thread at a time (whoever has the agent's role).
class TwoLevelPhases : public Collective {
 public:
  base::Result<StepResult> step() final;

 protected:
  using Phase = base::Result<std::unique_ptr<Collective>>;

  // Blocks between the beginning of A and the end of C.
  static constexpr std::int64_t kBlocks = 3;

  TwoLevelPhases(std::int64_t blocks, int first_tag) : count_(blocks), first_tag_(first_tag) {}

  // Called in the order above, each when the one before is over. Nothing to do: of A and C on all
  // ranks of a host or on none. Phases that are not over are destroyed after what the derived class
  // holds, and touch nothing of it then.
  virtual Phase before(std::int64_t block) = 0;
  virtual Phase across(std::int64_t block) = 0;
  virtual Phase after(std::int64_t block) = 0;

  [[nodiscard]] static Phase nothing() { return std::unique_ptr<Collective>(); }

  // Tags for phase B of a block: kSegmentsInFlight of them.
  [[nodiscard]] int tag_of(std::int64_t block) const;

 private:
  [[nodiscard]] std::unique_ptr<Collective>& across_of(std::int64_t block) {
    return across_[static_cast<std::size_t>(block % kBlocks)];
  }
  // A as far ahead as there are places, otherwise C.
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
  std::array<std::unique_ptr<Collective>, kBlocks> across_;
  std::unique_ptr<Collective> in_host_;
  std::int64_t before_ = 0;  // blocks whose A is over
  std::int64_t after_ = 0;   // blocks whose C is over
};

}  // namespace ronde::collectives
