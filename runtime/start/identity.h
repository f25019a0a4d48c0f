// SPDX-License-Identifier: Apache-2.0
// Who this process is in its job, as whatever started it says: its rank, how many ranks there are,
// and where they meet.
//
// These say so; where several do, that one counts which is inside the others: whose variables
// disappear first on the way up through the environments with which this process, its parent and so
// on were started. Where nothing shows that, the first of this list counts, and two that give this
// process different ranks or sizes are an error:
//   by hand       RONDE_RANK RONDE_SIZE, and RONDE_MEET=host:port
//   MPI           Open MPI's mpirun, MVAPICH, PMI (MPICH, Intel MPI), jsrun, PMIx: MPI introduces
//                 the ranks
//   torchrun      RANK WORLD_SIZE MASTER_ADDR MASTER_PORT, and whatever sets these
//   horovodrun    HOROVOD_RANK HOROVOD_SIZE, and RONDE_MEET
//   TF_CONFIG     its chief is rank 0, its workers follow; the chief's address is the meeting point
//   Slurm's srun  SLURM_PROCID SLURM_STEP_NUM_TASKS; the first host of the step is the meeting
//                 point
// Half of a launcher's variables is an error where no other launcher has started several ranks. So
// is a child of a rank, which has inherited the variables that made its parent one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/status.h"
#include "runtime/start/ancestry.h"
#include "runtime/start/point.h"

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
  std::string job{};  // RONDE_JOB, or which of its jobs the launcher calls this; empty: nobody says
};

// From lines "NAME=value"; `ancestry` is called where it may matter. An error is one line
// that names the variable and what was expected, or both launchers that contradict each other
// (kInvalidArgument), or the rank that this process is a child of (kUnsupported). Pure.
base::Result<Identity> identity_of(
    std::span<const std::string> environment, std::int64_t pid = 0,
    const std::function<Ancestry()>& ancestry = [] { return Ancestry(); });

// The identity of this process, from its own environment; RONDE_ALONE=1 makes it a job of one.
base::Result<Identity> identity_of_this_process();

// What the launcher has said, by which a rank is told from others: variables, point and job.
[[nodiscard]] std::string words_of(const Identity& identity);

// Refuses a process that the launcher has not started alone.
[[nodiscard]] base::Status check_alone(const Identity& identity);

// Refuses a job of one rank if the launcher started more, or this process as another than rank 0:
// it is not the launcher of `mpi`, so each of its processes would train alone, and all would write
// the same files.
[[nodiscard]] base::Status check_launch(const Identity& identity, std::int64_t ranks,
                                        const std::string& mpi);

}  // namespace ronde::runtime
