// SPDX-License-Identifier: Apache-2.0
// ronderun doctor: looks at the hosts of a job before there is one, in the way that the job will
// go, and says what to mend. And ronderun --check-build.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ronde::launcher {

// How ronderun is called as the one process that doctor has on each host.
inline constexpr const char* kProbeFlag = "--probe-of-ronderun";

// `arguments`: what follows the word "doctor", options alone. Prints a table; returns 0 where
// nothing fails, 1, 2 for wrong arguments, or that of a signal.
int run_doctor(const std::vector<std::string>& arguments);

// Says what this host has, line by line, and does what it is asked over its standard input, until
// that ends.
int run_probe();

// What this build has, a line each.
[[nodiscard]] std::string text_of_build();

// libronde.so and its plug-ins, with the paths of those that are beside this program.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> libraries_of_this_host();

struct Cpu {
  std::string model;
  std::string features;  // those by which programs choose their kernels
};
[[nodiscard]] Cpu cpu_of_this_host();

}  // namespace ronde::launcher
