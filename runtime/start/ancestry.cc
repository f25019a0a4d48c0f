// SPDX-License-Identifier: Apache-2.0
// Reading environments from /proc, upwards.
#include "runtime/start/ancestry.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/numbers.h"
#include "base/process/file_descriptor.h"
#include "base/text.h"
#include "runtime/start/variables.h"

namespace ronde::runtime {

namespace {

constexpr int kMostProcesses = 64;

std::optional<std::string> file_of(std::int64_t pid, const std::string& name) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
  const base::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  std::string text;
  std::array<char, 4096> part{};
  for (;;) {
    const ssize_t got = ::read(file.get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) return text;
    text.append(part.data(), base::narrow<std::size_t>(got));
  }
}

// The fourth field of stat; the second is a name in parentheses, which may hold anything. 0: none.
std::int64_t parent_of(std::int64_t pid) {
  const auto text = file_of(pid, "stat");
  const std::size_t name_ends = text ? text->rfind(')') : std::string::npos;
  if (name_ends == std::string::npos || name_ends + 4 >= text->size()) return 0;
  const std::string rest = text->substr(name_ends + 4);  // ") S 4711 ..."
  return base::parse_number<std::int64_t>(rest.substr(0, rest.find(' '))).value_or(0);
}

std::vector<std::string> lines_of(const std::string& environment) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < environment.size();) {
    const std::size_t end = std::min(environment.find('\0', at), environment.size());
    lines.push_back(environment.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace

std::size_t Ancestry::distance_of(const std::vector<std::string>& variables,
                                  Environment environment) const {
  const auto is_foreign = [&](const std::vector<std::string>& lines) {
    return std::ranges::none_of(lines, [&](const std::string& line) {
      return std::ranges::find(environment, line) != environment.end();
    });
  };
  const auto has_all = [&](const std::vector<std::string>& lines) {
    // A program that has written a title over its environment hides it.
    if (is_foreign(lines)) return true;
    return std::ranges::all_of(variables, [&](const std::string& name) {
      return variable(lines, name) == variable(environment, name);
    });
  };
  const auto lacks = std::ranges::find_if_not(started_with, has_all);
  return base::narrow<std::size_t>(lacks - started_with.begin());
}

Ancestry ancestry_of_this_process() {
  Ancestry ancestry;
  std::int64_t pid = ::getpid();
  for (int i = 0; i < kMostProcesses && pid > 0; ++i) {
    const auto text = file_of(pid, "environ");
    if (!text) break;
    ancestry.started_with.push_back(lines_of(*text));
    pid = parent_of(pid);
  }
  return ancestry;
}

std::string RankMark::text() const {
  return std::to_string(pid) + " " + std::to_string(rank) + " " + std::to_string(size) + " " + said;
}

std::optional<RankMark> RankMark::parse(const std::string& text) {
  RankMark mark;
  std::size_t at = 0;
  const auto next = [&]<typename Number>(Number& number) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const auto value = base::parse_number<Number>(text.substr(std::min(at, end), end - at));
    at = end + 1;
    number = value.value_or(-1);
    return value && *value >= 0;
  };
  if (!next(mark.pid) || !next(mark.rank) || !next(mark.size)) return std::nullopt;
  if (at <= text.size()) mark.said = text.substr(at);
  return mark;
}

}  // namespace ronde::runtime
