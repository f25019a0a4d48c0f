// SPDX-License-Identifier: Apache-2.0
// Reading them; what is not there is nothing.
#include "launcher/host_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <ios>
#include <iterator>
#include <map>
#include <system_error>

#include "base/process/cores.h"
#include "launcher/lines.h"

namespace ronde::launcher {

namespace {

constexpr std::streamoff kTail = 8192;  // bytes that hold the last line of a file

// By what is the same for all of a group; in the order of the first of each.
std::vector<std::vector<int>> processors_by(
    const std::function<std::string(const std::string& folder)>& group_of) {
  std::map<std::string, std::size_t> places;
  std::vector<std::vector<int>> groups;
  for (const int processor : base::allowed_processors()) {
    const std::string group = group_of("/sys/devices/system/cpu/cpu" + std::to_string(processor));
    const auto [place, is_new] = places.try_emplace(group, groups.size());
    if (is_new) groups.emplace_back();
    groups[place->second].push_back(processor);
  }
  return groups;
}

}  // namespace

std::string last_line_of(const std::string& path) {
  std::ifstream file(path);
  file.seekg(0, std::ios::end);
  file.seekg(std::max<std::streamoff>(0, std::streamoff{file.tellg()} - kTail));
  LastLine last;
  last.take(std::string(std::istreambuf_iterator<char>(file), {}));
  // Where a rank has printed nothing, this is the line that begins the start.
  return last.text().starts_with("ronderun: ") ? "" : last.text();
}

std::vector<std::vector<int>> processors_of_nodes() {
  return processors_by([](const std::string& folder) -> std::string {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("node")) return name;
    }
    return "";
  });
}

std::vector<std::vector<int>> processors_of_cores() {
  return processors_by([](const std::string& folder) {
    std::ifstream file(folder + "/topology/thread_siblings_list");
    std::string siblings;
    std::getline(file, siblings);
    return siblings.empty() ? folder : siblings;
  });
}

Program find_program(const std::string& name, const std::string& path) {
  Program best;
  const auto look_at = [&best](const std::string& candidate) {
    struct stat info {};
    if (stat(candidate.c_str(), &info) != 0) return false;
    const bool runs = S_ISREG(info.st_mode) && access(candidate.c_str(), X_OK) == 0;
    if (runs || best.found == Found::kNo) {
      best = {runs ? Found::kYes : Found::kNotExecutable, candidate};
    }
    return runs;
  };
  if (name.find('/') != std::string::npos) {
    look_at(name);
    return best;
  }
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    if (look_at((folder.empty() ? "." : folder) + "/" + name)) break;
    begin = end + 1;
  }
  return best;
}

}  // namespace ronde::launcher
