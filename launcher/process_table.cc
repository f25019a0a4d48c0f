// SPDX-License-Identifier: Apache-2.0
// Processes come and go while their files are read; one that is gone has no parent here.
#include "launcher/process_table.h"

#include <dirent.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "base/parse_number.h"

namespace ronde::launcher {

namespace {

// The parent of a process, or 0 when it is gone.
pid_t parent_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');  // the name may hold blanks and brackets
  if (name_end == std::string::npos || name_end + 4 >= line.size()) return 0;
  pid_t parent = 0;
  std::from_chars(line.data() + name_end + 4, line.data() + line.size(), parent);
  return parent;
}

bool is_rank(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ");
  for (std::string variable; std::getline(file, variable, '\0');) {
    if (variable.starts_with("OMPI_COMM_WORLD_RANK=")) return true;
  }
  return false;
}

}  // namespace

std::set<pid_t> children_of(pid_t parent) {
  std::set<pid_t> result;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return result;
  while (const dirent* entry = readdir(folder)) {
    const auto process = base::parse_number<pid_t>(entry->d_name);
    if (process.has_value() && parent_of(entry->d_name) == parent) result.insert(*process);
  }
  closedir(folder);
  return result;
}

std::set<pid_t> ranks_of(pid_t mpirun) {
  std::set<pid_t> ranks;
  for (const pid_t child : children_of(mpirun)) {
    if (is_rank(child)) ranks.insert(child);
  }
  return ranks;
}

bool catches(pid_t process, int signal) {
  constexpr std::string_view kCaught = "SigCgt:\t";
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kCaught)) continue;
    std::uint64_t mask = 0;
    std::from_chars(line.data() + kCaught.size(), line.data() + line.size(), mask, 16);
    return ((mask >> static_cast<unsigned>(signal - 1)) & 1U) != 0;
  }
  return false;
}

}  // namespace ronde::launcher
