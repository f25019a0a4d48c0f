// SPDX-License-Identifier: Apache-2.0
// The texts of Open MPI 4.1: boxes between two lines of 74 dashes, and a few lines outside them.
#include "launcher/mpirun_voice.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "base/text.h"

namespace ronde::launcher {

namespace {

constexpr std::size_t kDashes = 74;
constexpr std::string_view kCannotReach = "ssh: ";
constexpr std::string_view kForwarding = "mpirun: Forwarding signal ";
constexpr std::string_view kPipeLine = " mpirun: SIGPIPE detected on fd ";

// How the boxes begin that ronderun says in one line. Others pass, as the warnings of MPI itself.
constexpr std::array<std::string_view, 8> kOpenings{
    "Primary job  terminated normally",
    "mpirun detected that one or more processes exited",
    "mpirun noticed that process rank ",
    "mpirun has exited due to process rank ",
    "MPI_ABORT was invoked on rank ",
    "ORTE was unable to reliably start one or more daemons",
    "There are not enough slots available in the system",
    "All nodes which are allocated for this job are already filled",
};

bool is_rule(std::string_view line) {
  return line.size() == kDashes + 1 && line.find_first_not_of('-') == kDashes;
}

// The word after `before`, up to a blank, a comma, a bracket or a line end; empty: not there.
std::string word_after(std::string_view text, std::string_view before) {
  const std::size_t at = text.find(before);
  if (at == std::string_view::npos) return "";
  std::string_view rest = text.substr(at + before.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" \n"), rest.size()));
  return std::string(rest.substr(0, rest.find_first_of(" ,]\n")));
}

std::optional<std::int64_t> number_after(std::string_view text, std::string_view before) {
  return base::parse_number<std::int64_t>(word_after(text, before));
}

// "[host:pid] ..." is how Open MPI marks lines of its own.
bool is_marked(std::string_view line) {
  const std::size_t colon = line.find(':');
  const std::size_t end = line.find(']');
  return line.starts_with('[') && colon != std::string_view::npos &&
         end != std::string_view::npos && colon < end &&
         line.substr(colon + 1, end - colon - 1).find_first_not_of("0123456789") ==
             std::string_view::npos;
}

}  // namespace

bool MpirunVoice::may_be_ours(std::string_view begin) const {
  if (in_box_) return true;
  if (begin.find_first_not_of('-') == std::string_view::npos) return begin.size() <= kDashes;
  for (const std::string_view mark : {kPlaceMark, kCannotReach, kForwarding}) {
    if (begin.starts_with(mark) || mark.starts_with(begin)) return true;
  }
  // Only "[host:pid] mpirun:" is ours, until a pipe is broken; then mpirun says more and crashes.
  if (begin.starts_with('[')) {
    const std::size_t end = begin.find(']');
    if (end == std::string_view::npos) return begin.size() < kDashes;
    const std::string_view rest = begin.substr(end + 1);
    return is_marked(begin) &&
           (cause_.broken_pipe || rest.starts_with(kPipeLine) || kPipeLine.starts_with(rest));
  }
  return cause_.broken_pipe && (begin.starts_with("mpirun: abort") ||
                                std::string_view("mpirun: abort").starts_with(begin));
}

std::string MpirunVoice::pass(std::string_view bytes) {
  std::string shown;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const bool whole = end != std::string_view::npos;
    const std::string_view part = bytes.substr(0, whole ? end + 1 : bytes.size());
    bytes.remove_prefix(part.size());
    if (!at_line_start_) {  // its beginning has passed
      shown += part;
    } else {
      held_ += part;
      if (whole) {
        const std::string line = std::move(held_);
        held_.clear();
        shown += take_line(line);
      } else if (!may_be_ours(held_)) {
        shown += held_;
        held_.clear();
        at_line_start_ = false;
      }
      if (!whole) continue;
    }
    if (whole) at_line_start_ = true;
  }
  return shown;
}

std::string MpirunVoice::finish() {
  std::string rest = std::move(box_) + held_;
  box_.clear();
  held_.clear();
  in_box_ = false;
  return rest;
}

std::string MpirunVoice::take_line(std::string_view line) {
  if (in_box_) return take_box_line(line);
  if (is_rule(line)) {
    in_box_ = true;
    box_ = line;
    return "";
  }
  return understand_line(line) ? "" : std::string(line);
}

std::string MpirunVoice::take_box_line(std::string_view line) {
  const bool first = box_.size() == kDashes + 1;
  const bool known =
      !first || std::any_of(kOpenings.begin(), kOpenings.end(),
                            [line](std::string_view opening) { return line.starts_with(opening); });
  box_ += line;
  if (known && !is_rule(line)) return "";
  in_box_ = false;
  const std::string box = std::move(box_);
  box_.clear();
  return known && understand(box) ? "" : box;
}

bool MpirunVoice::understand(std::string_view box) {
  const auto blame = [this](std::optional<std::int64_t> rank, std::string host) {
    if (cause_.rank.has_value() || !rank.has_value()) return;
    cause_.rank = rank;
    if (host.empty() && hosts_.count(*rank) != 0) host = hosts_.at(*rank);
    cause_.host = std::move(host);
  };
  if (box.find("process rank ") != std::string_view::npos) {
    blame(number_after(box, "process rank "), word_after(box, "on node "));
  } else if (box.find("was invoked on rank ") != std::string_view::npos) {
    blame(number_after(box, "was invoked on rank "), "");
  } else if (box.find("Process name: [[") != std::string_view::npos) {
    // "[[job,1],rank]"
    const std::size_t inner = box.find("],", box.find("Process name: [["));
    if (inner != std::string_view::npos) blame(number_after(box.substr(inner), "],"), "");
  } else if (box.find("ORTE was unable") != std::string_view::npos) {
    if (cause_.trouble.empty()) {
      cause_.trouble =
          "mpirun could not start on another host: is it reachable with ssh without a password, "
          "and is the same Open MPI installed there?";
    }
  } else if (box.find("not enough slots") != std::string_view::npos ||
             box.find("already filled") != std::string_view::npos) {
    cause_.too_few_slots = true;
    cause_.trouble =
        "there are fewer slots than ranks: give the hosts more, as in -H a:4,b:4, or add "
        "--mpi-args --oversubscribe";
  }
  return true;
}

bool MpirunVoice::understand_line(std::string_view line) {
  if (line.starts_with(kPlaceMark)) {
    const auto rank = number_after(line, kPlaceMark);
    if (rank.has_value()) hosts_[*rank] = word_after(line, " is ");
    return rank.has_value();
  }
  if (line.starts_with(kCannotReach)) {
    std::string host = word_after(line, "resolve hostname ");
    if (host.empty()) host = word_after(line, "connect to host ");
    if (host.empty()) return false;
    if (host.ends_with(':')) host.pop_back();
    const std::string_view words = line.substr(kCannotReach.size());
    cause_.trouble = "host " + host + " cannot be reached: " +
                     std::string(words.substr(0, words.find_last_not_of("\r\n") + 1));
    return true;
  }
  if (line.starts_with(kForwarding)) return true;
  if (is_marked(line) && line.find(kPipeLine) != std::string_view::npos) {
    cause_.broken_pipe = true;
    return true;
  }
  return cause_.broken_pipe &&
         (line == "\n" || is_marked(line) || line.starts_with("mpirun: abort"));
}

}  // namespace ronde::launcher
