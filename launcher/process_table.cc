// SPDX-License-Identifier: Apache-2.0
// Processes come and go while their files are read; one that is gone has no parent here.
#include "launcher/process_table.h"

#include <dirent.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <system_error>

#include "base/text.h"

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

// Which rank of which job a process is, as Open MPI writes it into the environment of a rank; empty
// for one that is none.
std::string rank_identity(const std::string& process) {
  std::ifstream file("/proc/" + process + "/environ");
  std::string rank;
  std::string job;
  for (std::string variable; std::getline(file, variable, '\0');) {
    if (variable.starts_with("OMPI_COMM_WORLD_RANK=")) rank = variable;
    if (variable.starts_with("PMIX_NAMESPACE=")) job = variable;
  }
  return rank.empty() ? rank : rank + "," + job;
}

// A copy of /proc's tree: the children of every process.
std::multimap<pid_t, pid_t> family() {
  std::multimap<pid_t, pid_t> children;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return children;
  while (const dirent* entry = readdir(folder)) {
    const auto process = base::parse_number<pid_t>(entry->d_name);
    if (process.has_value()) children.emplace(parent_of(entry->d_name), *process);
  }
  closedir(folder);
  return children;
}

// Visits a process and those below it, the nearest ones first. `visit` returns whether to go on
// below the process.
template <typename Visit>
void visit_below(pid_t root, Visit visit) {
  const std::multimap<pid_t, pid_t> children = family();
  std::deque<pid_t> next{root};
  while (!next.empty()) {
    const pid_t process = next.front();
    next.pop_front();
    if (!visit(process)) continue;
    const auto [begin, end] = children.equal_range(process);
    for (auto child = begin; child != end; ++child) next.push_back(child->second);
  }
}

// Where ronderun itself runs in a rank of another job, every process here has inherited the marks
// of that rank.
bool is_rank(pid_t process, const std::string& inherited) {
  const std::string identity = rank_identity(std::to_string(process));
  return !identity.empty() && identity != inherited;
}

}  // namespace

bool is_mpirun(pid_t process) {
  std::error_code error;
  const auto program =
      std::filesystem::read_symlink("/proc/" + std::to_string(process) + "/exe", error);
  const std::string name = program.filename().string();
  constexpr std::array<std::string_view, 4> kNames{"mpirun", "mpiexec", "orterun", "prterun"};
  return !error && std::any_of(kNames.begin(), kNames.end(),
                               [&name](std::string_view known) { return name.starts_with(known); });
}

std::set<pid_t> children_of(pid_t parent) {
  std::set<pid_t> result;
  const std::multimap<pid_t, pid_t> children = family();
  const auto [begin, end] = children.equal_range(parent);
  for (auto child = begin; child != end; ++child) result.insert(child->second);
  return result;
}

std::set<pid_t> ranks_below(pid_t root, const std::set<pid_t>& known) {
  const std::string inherited = rank_identity("self");
  std::set<pid_t> ranks;
  visit_below(root, [&](pid_t process) {
    if (known.count(process) != 0) return false;
    if (!is_rank(process, inherited)) return true;
    ranks.insert(process);
    return false;
  });
  return ranks;
}

pid_t mpirun_below(pid_t root) {
  const std::string inherited = rank_identity("self");
  pid_t found = 0;
  visit_below(root, [&](pid_t process) {
    if (found != 0 || is_rank(process, inherited)) return false;
    if (is_mpirun(process) || catches(process, SIGUSR2)) found = process;
    return found == 0;
  });
  return found;
}

std::string name_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
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
