// SPDX-License-Identifier: Apache-2.0
// Reads the standard error of mpirun, where the ranks' lines and mpirun's own boxes of text are
// mixed: passes the former on, and keeps from the latter what the user has to know. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace ronde::launcher {

// Why a job ended, in mpirun's words or in ours. Thread safety: a value.
struct Cause {
  std::optional<std::int64_t> rank;  // that failed first
  std::string host;                  // of that rank; empty: not known
  std::string trouble;               // why nothing started: a whole line; empty: it did
  bool broken_pipe = false;          // a reader of mpirun's output went away
  bool too_few_slots = false;        // for this command line, at every start
};

// Written for Open MPI 4.1. What it does not know passes.
//
// Thread safety: none.
class MpirunVoice {
 public:
  // Returns what the user sees of these bytes. A line is held back only while it may be the
  // beginning of mpirun's own.
  [[nodiscard]] std::string pass(std::string_view bytes);
  // Returns what was held back when the output ended.
  [[nodiscard]] std::string finish();

  [[nodiscard]] const Cause& cause() const { return cause_; }

  // What a rank on another host prints before it starts, so that its host is known.
  static constexpr std::string_view kPlaceMark = "ronderun: the host of rank ";

 private:
  [[nodiscard]] bool may_be_ours(std::string_view begin) const;
  // Takes a whole line with its end; returns what passes.
  [[nodiscard]] std::string take_line(std::string_view line);
  [[nodiscard]] std::string take_box_line(std::string_view line);
  bool understand(std::string_view box);
  bool understand_line(std::string_view line);

  bool at_line_start_ = true;
  bool in_box_ = false;
  std::string held_;  // a line that may be mpirun's
  std::string box_;   // of which some lines have come
  std::map<std::int64_t, std::string> hosts_;
  Cause cause_;
};

}  // namespace ronde::launcher
