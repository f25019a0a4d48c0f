// SPDX-License-Identifier: Apache-2.0
// The start of a job of processes whose ranks have met.
#pragma once

#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/config.h"
#include "base/status.h"
#include "collectives/transport/meeting.h"
#include "collectives/transport/plugin.h"
#include "collectives/transport/transport_library.h"
#include "runtime/job/job.h"

namespace ronde::runtime {

// How the ranks have met. Thread safety: a value.
struct Met {
  std::unique_ptr<collectives::Meeting> meeting;
  // The plug-in whose meeting that is, and its part of it; nothing if Ronde introduced the ranks.
  std::optional<collectives::TransportLibrary> plugin;
  ronde_meeting_party* party = nullptr;
};

class OpeningEngine;

// Makes the meeting a job: exchanges addresses, hands out the boards, and connects the leaders and the transport.
// Collective; an error is the same on all ranks that can be reached.
base::Result<std::unique_ptr<Job>> open_job(Met met, std::unique_ptr<OpeningEngine> engine,
                                            const base::Config& config, const base::Clock& clock,
                                            base::Instant deadline);

}  // namespace ronde::runtime
