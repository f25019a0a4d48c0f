// SPDX-License-Identifier: Apache-2.0
// Reading and changing the environment.
#include "base/process/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#include "base/mutex.h"
#include "base/text.h"

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
  const auto fields =
      words_of(std::string_view(stat).substr(std::min(stat.rfind(')') + 1, stat.size())));
  constexpr std::size_t kBegin = 50 - 3;  // proc(5) counts fields from 1; here is the third one
  if (fields.size() <= kBegin + 1) return;
  const auto begin = parse_number<std::uintptr_t>(fields[kBegin]).value_or(0);
  const auto end = parse_number<std::uintptr_t>(fields[kBegin + 1]).value_or(0);
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
