// SPDX-License-Identifier: Apache-2.0
// What ronderun has to know about the machine it runs on. These functions only read files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launcher/plan.h"

namespace ronde::launcher {

// The facts of this process on this machine, with what they say of the program of a job; mpirun
// stays as the word "mpirun".
[[nodiscard]] Facts facts_of_this_machine(const std::string& program);

// Where a rank has started this process: takes the words out of the environment by which it would
// be that rank, and its mark, since what ronderun starts is a job of its own. For a program of one
// thread.
void forget_the_rank();

// A library that belongs to this program, in a build and in an installed tree; nothing: it is not
// there.
[[nodiscard]] std::optional<std::string> beside_this_program(const std::string& name);

// A new secret of a job, as text: 256 random bits.
[[nodiscard]] std::string new_secret();

// The MPI with which a program is linked, as the loader says: "libmpi.so.40"; empty: none, or it is
// a script.
[[nodiscard]] std::string mpi_of_program(const std::string& path);

}  // namespace ronde::launcher
