// SPDX-License-Identifier: Apache-2.0
// Reading and changing the environment.
#include "base/process/environment.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/mutex.h"

namespace ronde::base {

namespace {

Mutex& environment_lock() {
  static Mutex mutex;
  return mutex;
}

}  // namespace

std::vector<std::string> process_environment() {
  const MutexLock lock(environment_lock());
  std::vector<std::string> lines;
  for (char** line = environ; line != nullptr && *line != nullptr; ++line)
    lines.emplace_back(*line);
  return lines;
}

void set_variable(const std::string& name, const std::string& value) {
  const MutexLock lock(environment_lock());
  ::setenv(name.c_str(), value.c_str(), 1);
}

std::optional<std::string> take_variable(const std::string& name) {
  const MutexLock lock(environment_lock());
  char* const value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  std::string taken = value;
  ::explicit_bzero(value, taken.size());
  ::unsetenv(name.c_str());
  if (taken.empty()) return std::nullopt;
  return taken;
}

}  // namespace ronde::base
