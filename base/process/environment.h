// SPDX-License-Identifier: Apache-2.0
// The environment of this process, as Ronde reads and changes it: under one lock, since engines are
// opened by several threads at once. It cannot keep the program's own threads away.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ronde::base {

// Lines "NAME=value". Any thread.
[[nodiscard]] std::vector<std::string> process_environment();
// Any thread.
void set_variable(const std::string& name, const std::string& value);
// Takes a variable out of the environment, and overwrites its value where the process was started
// with it, since others could read it there for as long as the process lives (/proc/PID/environ).
// Nothing where it is not set or empty. Any thread.
std::optional<std::string> take_variable(const std::string& name);

}  // namespace ronde::base
