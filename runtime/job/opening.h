// SPDX-License-Identifier: Apache-2.0
// The start of a job of processes whose ranks have met.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/config.h"
#include "base/status.h"
#include "runtime/job/job.h"
#include "runtime/job/met.h"

namespace ronde::runtime {

class OpeningEngine;

// Makes the meeting a job: exchanges addresses, hands out the boards, and connects the leaders and
// the transport. Collective; an error is the same on all ranks that can be reached.
base::Result<std::unique_ptr<Job>> open_job(Met met, std::unique_ptr<OpeningEngine> engine,
                                            const base::Config& config, const base::Clock& clock,
                                            base::Instant deadline);

}  // namespace ronde::runtime
