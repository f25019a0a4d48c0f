// SPDX-License-Identifier: Apache-2.0
// The agent of a host: starts the ranks that ronderun gives it, brings what they print, and ends
// with them. Where ronderun is killed, or is not heard any more, it ends them and all that they
// have left behind.
#pragma once

#include <string>
#include <vector>

#include "launcher/agent/channel.h"

namespace ronde::launcher {

// How ronderun is called where it is not the user who does: as an agent, and before a program that
// mpirun starts.
inline constexpr const char* kAgentFlag = "--agent-of-ronderun";
inline constexpr const char* kForMpirunFlag = "--for-mpirun";

// Until all that it has started has ended; for a process of one thread, which is to be nothing
// else. `far`: the line may be cut without an end. Returns the exit code of that process.
int run_agent(Channel channel, bool far);

// Starts a program for mpirun, in its place: tells the agent of this host (by the name of the job)
// when it has started and how it has ended, and passes signals on to it. Returns its exit code, or
// ends by its signal.
int run_for_mpirun(const std::string& job, const std::string& output_dir,
                   const std::string& start_line, std::vector<std::string> program);

}  // namespace ronde::launcher
