// SPDX-License-Identifier: Apache-2.0
// Who this process is in its job, as whatever started it says: its rank, how many ranks there are,
// and where they meet. Pure.
//
// These say so, and the first of them counts:
//   by hand       RONDE_RANK RONDE_SIZE, and RONDE_MEET=host:port
//   MPI           Open MPI's mpirun, PMIx and PMI (MPICH, Intel MPI): MPI introduces the ranks
//   torchrun      RANK WORLD_SIZE MASTER_ADDR MASTER_PORT, and whatever sets these
//   TF_CONFIG     its chief is rank 0, its workers follow; the chief's address is the meeting point
//   Slurm's srun  SLURM_PROCID SLURM_STEP_NUM_TASKS; the first host of the step is the meeting
//   point
// Slurm may have started one of the others inside its allocation: then that one counts, and they
// need not agree. Of the others no two are nested, so two that give this process different ranks or
// sizes are an error.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "runtime/meet/point.h"

namespace ronde::runtime {

struct Identity {
  enum class Introduced : std::uint8_t {
    kByNobody,    // a job of one: nothing started several ranks
    kByMpi,       // rank and size are what the launcher said, size -1 where it did not
    kAtAMeeting,  // at `point`
  };

  Introduced introduced = Introduced::kByNobody;
  std::string launcher;  // "torchrun or one like it"; empty: none
  std::string said;      // "RANK=1 WORLD_SIZE=4": the variables
  std::int32_t rank = 0;
  std::int32_t size = 1;
  MeetingPoint point;
};

// From lines "NAME=value". An error (kInvalidArgument) is one line that names the variable and what
// was expected, or both launchers that contradict each other.
base::Result<Identity> identity_of(std::span<const std::string> environment);

// Refuses a job of one rank if the launcher started more: it is not the launcher of `mpi`, so each
// of its processes would train alone, and all would write the same files.
[[nodiscard]] base::Status check_launch(const Identity& identity, std::int64_t ranks,
                                        const std::string& mpi);

}  // namespace ronde::runtime
