// SPDX-License-Identifier: Apache-2.0
// How the ranks of this process's job meet: over MPI where MPI started them, or not at all.
#include <cstdlib>
#include <optional>
#include <utility>

#include "collectives/transport/plugin_meeting.h"
#include "collectives/transport/process_mpi.h"
#include "runtime/job/job.h"
#include "runtime/job/launch.h"
#include "runtime/job/local_job.h"
#include "runtime/job/opening.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;
using collectives::PluginMeeting;
using collectives::ProgramCommunicator;
using collectives::TransportLibrary;

namespace {

constexpr const char* kMpi = "mpi";

Result<std::unique_ptr<Job>> job_of_one(const base::Config& config, const base::Clock& clock) {
  auto job = LocalJob::create(1);
  RONDE_RETURN_IF_ERROR(job.status());
  return (*job)->join(0, config, clock);
}

// These are set for every process by mpirun and prterun (Open MPI), by PMIx launchers and by PMI
// ones (MPICH, Intel MPI, srun).
bool started_by_mpi() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) {
    if (std::getenv(variable) != nullptr) return true;
  }
  return false;
}

// Joins the ranks of a communicator, or those that MPI's launcher started.
Result<std::unique_ptr<Job>> job_over_mpi(const TransportLibrary& plugin,
                                          const ProgramCommunicator* communicator,
                                          const base::Config& config, const base::Clock& clock) {
  const base::Instant deadline = clock.after(config.start_timeout);
  auto joined = PluginMeeting::join(plugin, communicator, clock, deadline);
  RONDE_RETURN_IF_ERROR(joined.status());
  if (communicator == nullptr) {
    const Status launched =
        check_launch(base::Config::process_environment(), (*joined)->size(), plugin.library());
    if (!launched.ok()) {
      (*joined)->close().ignore();  // so that MPI is finalised at exit
      return launched;
    }
  }
  ronde_meeting_party* const party = (*joined)->party();
  return open_job({std::move(*joined), plugin, party}, config, clock, deadline);
}

}  // namespace

Result<std::unique_ptr<Job>> open_process_job(const ProgramCommunicator* communicator,
                                              const base::Config& config,
                                              const base::Clock& clock) {
  if (config.mpi == "off") {
    if (communicator == nullptr) return job_of_one(config, clock);
    return Status::error(Code::kInvalidArgument,
                         "RONDE_MPI=off makes a job of one, but the program gave a communicator of "
                         "its own: unset RONDE_MPI, or give none");
  }
  // Before the plug-in brings its own.
  const auto loaded = collectives::process_mpi();
  const bool wanted = communicator != nullptr || started_by_mpi() || (loaded && loaded->started);
  const auto environment = base::Config::process_environment();
  const auto launch = launch_of(environment);
  const bool alone = !launch || launch->ranks == 1;
  if (!wanted && alone) return job_of_one(config, clock);
  const auto plugin = TransportLibrary::load(kMpi, config.transport_path);
  if (!wanted) {
    return check_launch(environment, 1, plugin.ok() ? plugin->library() : "no MPI plug-in");
  }
  if (!plugin.ok()) {
    // One that was started alone needs no others, and so no MPI.
    if (communicator == nullptr && launch && alone) return job_of_one(config, clock);
    return Status::error(plugin.status().code(),
                         "this Ronde cannot join the other ranks of this job, which are joined "
                         "over MPI: configure it with -DRONDE_WITH_MPI=ON, or start the program "
                         "without mpirun",
                         plugin.status());
  }
  RONDE_RETURN_IF_ERROR(check_mpi(*plugin, communicator, loaded));
  return job_over_mpi(*plugin, communicator, config, clock);
}

}  // namespace ronde::runtime
