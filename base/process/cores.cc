// SPDX-License-Identifier: Apache-2.0
// How masks and quotas are read from the kernel and from its files below /sys/fs/cgroup.
#include "base/process/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace ronde::base {

namespace {

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::vector<int> allowed_processors() {
  std::vector<int> result;
  // The kernel's set can be larger than cpu_set_t.
  for (int size = CPU_SETSIZE; size <= (1 << 20); size *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
        CPU_ALLOC(static_cast<std::size_t>(size)), [](cpu_set_t* old) { CPU_FREE(old); });
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(size));
    CPU_ZERO_S(bytes, set.get());
    if (sched_getaffinity(0, bytes, set.get()) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    for (int processor = 0; processor < size; ++processor) {
      if (CPU_ISSET_S(static_cast<std::size_t>(processor), bytes, set.get())) {
        result.push_back(processor);
      }
    }
    break;
  }
  return result;
}

std::int64_t cores_of_quota(std::string_view cpu_max, std::int64_t fallback) {
  const std::vector<std::string> words = words_of(cpu_max);
  if (words.size() < 2) return fallback;
  const std::int64_t quota = parse_number<std::int64_t>(words[0]).value_or(0);
  const std::int64_t period = parse_number<std::int64_t>(words[1]).value_or(0);
  if (quota <= 0 || period <= 0) return fallback;
  return std::max<std::int64_t>(1, quota / period);
}

std::int64_t cores_of_cgroups(std::int64_t cores) {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t second = line.find(':', line.find(':') + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(line.find(':') + 1, second - line.find(':') - 1);
    const bool version_2 = controllers.empty();
    if (!version_2 && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    const std::filesystem::path root = version_2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    std::filesystem::path group = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (;; group = group.parent_path()) {
      const std::filesystem::path folder = group.empty() ? root : root / group;
      const std::string limit = version_2 ? first_line(folder / "cpu.max")
                                          : first_line(folder / "cpu.cfs_quota_us") + " " +
                                                first_line(folder / "cpu.cfs_period_us");
      cores = std::min(cores, cores_of_quota(limit, cores));
      if (group.empty()) break;
    }
  }
  return cores;
}

std::int64_t cores_of_masks(const std::vector<std::vector<int>>& masks) {
  std::set<int> processors;
  for (const std::vector<int>& mask : masks) processors.insert(mask.begin(), mask.end());
  return cores_of_cgroups(std::max<std::int64_t>(1, std::ssize(processors)));
}

}  // namespace ronde::base
