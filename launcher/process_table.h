// SPDX-License-Identifier: Apache-2.0
// What /proc says about the processes of this host.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

namespace ronde::launcher {

[[nodiscard]] std::set<pid_t> children_of(pid_t parent);

// The ranks below a process on this host, at any depth: mpirun may stand behind a script of the
// same name. The shell that may stand before a program becomes it, so these are the programs; what
// runs below a rank is not among them. Nor are those that are `known`, which may have ended
// meanwhile and no longer show what they were.
[[nodiscard]] std::set<pid_t> ranks_below(pid_t root, const std::set<pid_t>& known);

// Tells whether a process runs Open MPI's mpirun, under any of its names.
[[nodiscard]] bool is_mpirun(pid_t process);

// The process itself or the nearest one below it that is mpirun, or that passes SIGUSR2 on as
// mpirun does; no rank, nor what runs below one. 0: there is none.
[[nodiscard]] pid_t mpirun_below(pid_t root);

// Tells whether a process has a handler for a signal. False for a process that is gone.
[[nodiscard]] bool catches(pid_t process, int signal);

// The name of a process; empty for one that is gone.
[[nodiscard]] std::string name_of(pid_t process);

}  // namespace ronde::launcher
