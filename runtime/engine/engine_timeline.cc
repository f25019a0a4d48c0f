// SPDX-License-Identifier: Apache-2.0
// The timeline of an engine: when it begins and ends, and the marks of the program.
#include <unistd.h>

#include "base/status.h"
#include "runtime/engine/engine.h"
#include "runtime/timeline/clock_offset.h"
#include "runtime/timeline/timeline.h"

namespace ronde::runtime {

using base::Status;

// Collective. Later each rank asks for itself (messages/clock_watch.h).
Status Engine::compare_clocks(base::Instant deadline) {
  RONDE_ASSIGN_OR_RETURN(
      const auto offset,
      measure_offset(job_->host(), job_->shape(), *clock_, [&](std::span<const std::byte> mine) {
        return job_->allgather(mine, "comparing the clocks of the hosts", *clock_, deadline);
      }));
  agent_.timeline().adjust(offset);
  return {};
}

Status Engine::start_timeline(const std::string& path, bool cycles) {
  RONDE_RETURN_IF_ERROR(usable());
  if (path.empty()) {
    return Status::error(base::Code::kInvalidArgument, "a timeline needs the path of a file");
  }
  return agent_.timeline().start(path, cycles);
}

Status Engine::stop_timeline() {
  RONDE_RETURN_IF_ERROR(usable());
  return agent_.timeline().stop();
}

Status Engine::mark(MarkKind kind, const std::string& name) {
  RONDE_RETURN_IF_ERROR(usable());
  Timeline& timeline = agent_.timeline();
  if (!timeline.on()) return {};
  timeline.add(TracedMark{kind, name, static_cast<std::int32_t>(::gettid()), clock_->now()});
  return {};
}

// A training is worth more than its picture: where the file cannot be written it goes on.
void Engine::start_timeline_of_settings() {
  if (config_.timeline.empty()) return;
  const Status started = start_timeline(config_.timeline, false);
  if (started.ok()) return;
  // The ranks of a host meet with the same trouble, and one line is enough.
  log_.log(local_rank_ == 0 ? base::LogLevel::kError : base::LogLevel::kInfo,
           started.message() + " (RONDE_TIMELINE): the job goes on without a timeline");
}

}  // namespace ronde::runtime
