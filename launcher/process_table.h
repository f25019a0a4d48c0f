// SPDX-License-Identifier: Apache-2.0
// What /proc says about the processes of this host.
#pragma once

#include <sys/types.h>

#include <set>

namespace ronde::launcher {

[[nodiscard]] std::set<pid_t> children_of(pid_t parent);

// The ranks among the children of mpirun, whose other children are its connections to other hosts.
// On its own host Open MPI's mpirun starts every rank itself, and the shell that may stand before a
// program becomes it, so these are the programs; a rank's own children are not among them.
[[nodiscard]] std::set<pid_t> ranks_of(pid_t mpirun);

// Tells whether a process has a handler for a signal. False for a process that is gone.
[[nodiscard]] bool catches(pid_t process, int signal);

}  // namespace ronde::launcher
