// SPDX-License-Identifier: Apache-2.0
// How the ranks of this process's job meet: over MPI where MPI started them, at a meeting point
// where something else did, or not at all.
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/process/environment.h"
#include "collectives/transport/plugin_meeting.h"
#include "collectives/transport/process_mpi.h"
#include "runtime/job/job.h"
#include "runtime/job/local_job.h"
#include "runtime/job/opening.h"
#include "runtime/job/opening_engine.h"
#include "runtime/meet/meet.h"
#include "runtime/meet/secret.h"
#include "runtime/meet/store.h"
#include "runtime/start/ancestry.h"
#include "runtime/start/identity.h"
#include "runtime/start/point.h"
#include "runtime/start/variables.h"

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
  RONDE_ASSIGN_OR_RETURN(auto job, LocalJob::create(1));
  return job->join(0, config, clock);
}

// Tells children of this process, which inherit the words of its launcher, whose children they are:
// once in a process, where it can before the meeting and plug-ins have threads.
void leave_mark(std::int32_t rank, std::int32_t size) {
  if (size <= 1) return;
  const auto old = variable(base::process_environment(), RankMark::kVariable);
  const auto known = old ? RankMark::parse(*old) : std::nullopt;
  if (known && known->pid == ::getpid()) return;
  const auto identity = identity_of_this_process();
  const RankMark mark{::getpid(), rank, size, identity.ok() ? words_of(*identity) : ""};
  base::set_variable(RankMark::kVariable, mark.text());
}

// Makes a job of the ranks that open the same engine; see OpeningEngine for name and place.
Result<std::unique_ptr<Job>> job_of(const std::string& name, const std::string& place,
                                    const std::function<Result<Met>()>& join,
                                    const base::Config& config, const base::Clock& clock,
                                    base::Instant deadline) {
  RONDE_ASSIGN_OR_RETURN(auto engine, OpeningEngine::begin(name, place));
  RONDE_ASSIGN_OR_RETURN(auto met, engine->meet(join, clock, deadline));
  RONDE_ASSIGN_OR_RETURN(auto job,
                         open_job(std::move(met), std::move(engine), config, clock, deadline));
  leave_mark(job->rank(), job->size());  // where the launcher did not say them
  return job;
}

// The ranks meet at a meeting point.
Result<std::unique_ptr<Job>> job_of_meeting(const Identity& identity, const std::string& name,
                                            const base::Config& config, const base::Clock& clock) {
  const base::Instant deadline = clock.after(config.start_timeout);
  MeetingPlan plan;
  plan.rank = identity.rank;
  plan.size = identity.size;
  plan.point = identity.point;
  plan.launcher = identity.launcher;
  plan.job = identity.job;
  RONDE_ASSIGN_OR_RETURN(plan.secret, MeetingSecret::of_this_process());
  plan.interfaces = config.interfaces;
  plan.keepalive = base::Keepalive::of(config.link_timeout);
  plan.log = base::Log(config.log_level, identity.rank);
  leave_mark(plan.rank, plan.size);
  const auto join = [&]() -> Result<Met> {
    RONDE_ASSIGN_OR_RETURN(auto met, meet(plan, clock, deadline));
    const auto secret = plan.secret.bytes();
    return Met{std::move(met), std::nullopt, nullptr, {secret.begin(), secret.end()}};
  };
  // Ranks of one process, in threads, do not wait for each other.
  const std::string place = std::to_string(plan.rank) + " at " + text_of(plan.point);
  return job_of(name, place, join, config, clock, deadline);
}

// Joins the ranks of a communicator, or those that MPI's launcher started.
Result<Met> join_over_mpi(const TransportLibrary& plugin, const ProgramCommunicator* communicator,
                          const Identity& identity, const base::Clock& clock,
                          base::Instant deadline) {
  RONDE_ASSIGN_OR_RETURN(auto joined, PluginMeeting::join(plugin, communicator, clock, deadline));
  if (communicator == nullptr) {
    const Status launched = check_launch(identity, joined->size(), plugin.library());
    if (!launched.ok()) {
      joined->close().ignore();  // so that MPI is finalised at exit
      return launched;
    }
  }
  ronde_meeting_party* const party = joined->party();
  return Met{std::move(joined), plugin, party};
}

Status check_own(const OwnJob& own, const base::Config& config) {
  const std::string given = "the options of the engine give rank " + std::to_string(own.rank) +
                            " of " + std::to_string(own.size);
  const auto refused = [](const std::string& text) {
    return Status::error(Code::kInvalidArgument, text);
  };
  if (config.is_alone()) {
    return refused("RONDE_ALONE=1 (or RONDE_MPI=off) makes a job of one, but " + given +
                   ": unset it, or give none");
  }
  if (own.size < 1 || own.rank < 0 || own.rank >= own.size) {
    return refused(given + ": ranks count from 0 to size - 1");
  }
  if (own.store != nullptr && !own.meet.empty()) {
    return refused(given + ", a store and a meeting point (" + own.meet + "): give one of them");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Job>> open_own_job(const OwnJob& own, const base::Config& config,
                                          const base::Clock& clock) {
  RONDE_RETURN_IF_ERROR(check_own(own, config));
  if (own.size == 1) return job_of_one(config, clock);
  if (own.store != nullptr) {
    const base::Instant deadline = clock.after(config.start_timeout);
    leave_mark(own.rank, own.size);
    RONDE_ASSIGN_OR_RETURN(const auto secret, MeetingSecret::of_this_process());
    const auto join = [&]() -> Result<Met> {
      RONDE_ASSIGN_OR_RETURN(auto met, meet_over(own.store, own.rank, own.size, clock, deadline));
      const auto bytes = secret.bytes();
      return Met{std::move(met), std::nullopt, nullptr, {bytes.begin(), bytes.end()}};
    };
    return job_of(own.name, "", join, config, clock, deadline);
  }
  const bool chosen = own.meet.empty();
  const auto text = chosen ? variable(base::process_environment(), "RONDE_MEET") : own.meet;
  if (!text) {
    return Status::error(Code::kInvalidArgument,
                         "the options of the engine give rank and size, but neither a store nor a "
                         "meeting point, and RONDE_MEET is not set");
  }
  auto point = parse_meeting_point(chosen ? "RONDE_MEET" : "the option meet", *text);
  RONDE_RETURN_IF_ERROR(point.status());
  const Identity identity{Identity::Introduced::kAtAMeeting,
                          "the program",
                          "",
                          own.rank,
                          own.size,
                          std::move(*point),
                          variable(base::process_environment(), "RONDE_JOB").value_or("")};
  return job_of_meeting(identity, own.name, config, clock);
}

Result<std::unique_ptr<Job>> open_process_job(const ProgramCommunicator* communicator,
                                              const std::string& name, const base::Config& config,
                                              const base::Clock& clock) {
  if (config.is_alone()) {
    if (communicator == nullptr) return job_of_one(config, clock);
    return Status::error(
        Code::kInvalidArgument,
        "RONDE_ALONE=1 (or RONDE_MPI=off) makes a job of one, but the program gave a "
        "communicator of its own: unset it, or give none");
  }
  RONDE_ASSIGN_OR_RETURN(auto identity,
                         communicator == nullptr ? identity_of_this_process() : Result(Identity()));
  if (identity.introduced == Identity::Introduced::kAtAMeeting) {
    return job_of_meeting(identity, name, config, clock);
  }
  // Before the plug-in brings its own.
  const auto loaded = collectives::process_mpi();
  const bool launched = identity.introduced == Identity::Introduced::kByMpi;
  const bool wanted = communicator != nullptr || launched || (loaded && loaded->started);
  if (!wanted) return job_of_one(config, clock);
  const auto plugin = TransportLibrary::load(kMpi, config.transport_path);
  if (!plugin.ok()) {
    // One that was started alone needs no others, and so no MPI.
    if (launched && identity.size == 1) return job_of_one(config, clock);
    std::string text =
        "this Ronde cannot join the other ranks of this job, which are joined over MPI";
    std::string way_out = "start the program without mpirun";
    if (communicator != nullptr) {
      way_out = "give no communicator";
    } else if (loaded && loaded->started) {
      text = "the program has started MPI (" + loaded->library +
             "), and this Ronde cannot join its ranks";
      way_out = "set RONDE_ALONE=1 if this process is meant to be alone";
    }
    return Status::error(plugin.status().code(),
                         text + ": configure it with -DRONDE_WITH_MPI=ON, or " + way_out,
                         plugin.status());
  }
  RONDE_RETURN_IF_ERROR(check_mpi(*plugin, communicator, loaded));
  if (launched) leave_mark(identity.rank, identity.size);
  const base::Instant deadline = clock.after(config.start_timeout);
  const auto join = [&] { return join_over_mpi(*plugin, communicator, identity, clock, deadline); };
  return job_of(name, communicator == nullptr ? kMpi : "", join, config, clock, deadline);
}

}  // namespace ronde::runtime
