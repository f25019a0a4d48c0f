// SPDX-License-Identifier: Apache-2.0
// A start of a job: the agents of its hosts, what they say, and how it ends.
#pragma once

#include "base/clock.h"
#include "launcher/job/job_plan.h"
#include "launcher/job/outcome.h"
#include "launcher/output.h"
#include "launcher/signals.h"

namespace ronde::launcher {

// Runs the job until it has ended, by itself or by a signal, and nothing is left of it:
//
// - SIGTERM asks it to end: every rank gets SIGTERM. A job that ends within stop_grace keeps its
//   exit code.
// - After that, and at SIGINT and SIGHUP, the ranks are ended: SIGTERM if they had none, SIGKILL
//   two seconds later. A second such signal, or SIGQUIT, kills them at once.
// - SIGUSR1 and SIGUSR2 are passed on to every rank.
// - When a rank fails, the others have a moment to say what they have seen, and are ended. When one
//   has been stopped and has saved (75), the others have stop_grace.
// - When the reader of the output goes away, the job ends as if SIGINT had come.
// - A host whose agent is not heard for link_timeout, or whose line ends, is lost, and with it the
//   job.
// - What ranks that have ended well leave behind has stop_grace, or what a stop has left of it;
//   after a failure it is killed.
[[nodiscard]] Outcome run_job(const JobPlan& plan, Output& output, const Signals& signals,
                              const base::Clock& clock);

}  // namespace ronde::launcher
