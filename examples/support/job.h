// SPDX-License-Identifier: Apache-2.0
// How an example program runs as one rank of a job: which rank prints an error, and how the process
// ends.
#pragma once

#include <functional>
#include <ronde/ronde.hpp>
#include <string>

#include "bindings/trainer/loop/agreement.h"

namespace ronde::examples {

constexpr int kExitUsage = 2;

// Runs `program`, which parses its flags and so forth, and returns its exit code. An exception
// becomes a message and an exit code: 2 for a UsageError, otherwise trainer::exit_code_of(). It is
// for errors before the ranks know each other.
int run_program(const std::string& name, const std::function<int()>& program);

// Runs the part of a program that works with the other ranks, on an engine of its own, after
// comparing the flags of the ranks, and returns its exit code. An error ends the process right
// here, before anything is destroyed: destructors could wait for a rank that is dead, and memory
// that is still being reduced must stay where it is. Its message is this rank's last line.
int run_rank(const std::string& name, const trainer::Flags& flags,
             const std::function<int(Engine&)>& work);

// Whether standard error ends at a person's terminal (mpirun forwards it through a pipe).
bool stderr_is_terminal();

}  // namespace ronde::examples
