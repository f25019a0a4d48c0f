// SPDX-License-Identifier: Apache-2.0
// Reading and changing the environment.
#include "base/process/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/mutex.h"

namespace ronde::base {

namespace {

Mutex& environment_lock() {
  static Mutex mutex;
  return mutex;
}

// Overwrites a text in the environment that the process was started with, which stays readable in
// /proc/PID/environ; elsewhere it may be the program's own, and constant.
void overwrite_if_initial(char* text, std::size_t size) {
  std::ifstream file("/proc/self/stat");
  std::string stat;
  std::getline(file, stat);
  std::istringstream fields(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  constexpr int kBegin = 50;  // the fields of proc(5), counted from 1; the third one comes next
  std::string field;
  for (int i = 3; i < kBegin; ++i) fields >> field;
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  fields >> begin >> end;
  const auto at = reinterpret_cast<std::uintptr_t>(text);
  if (at >= begin && at + size <= end) ::explicit_bzero(text, size);
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
  overwrite_if_initial(value, taken.size());
  ::unsetenv(name.c_str());
  if (taken.empty()) return std::nullopt;
  return taken;
}

}  // namespace ronde::base
