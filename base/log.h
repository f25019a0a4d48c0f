// SPDX-License-Identifier: Apache-2.0
// One line per event on standard error, with the rank in front. An engine owns its logger.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/line_writer.h"
#include "base/status.h"

namespace ronde::base {

enum class LogLevel : std::int32_t { kTrace, kDebug, kInfo, kWarning, kError, kOff };

inline constexpr std::string_view kLogLevelNames[] = {"trace",   "debug", "info",
                                                      "warning", "error", "off"};

// Says nothing if standard error was closed when the library was loaded.
//
// Never blocks: a line that standard error has no room for is lost, and a later line says how many
// were. Copies share that count.
//
// Thread safety: every function may be called from any thread; the lines of a log
// and its copies do not mix. A line that is longer than the room takes several writes.
class Log {
 public:
  using Sink = std::function<void(std::string_view line)>;

  // Before a rank is known, pass rank -1: the prefix is then "ronde".
  explicit Log(LogLevel level = LogLevel::kWarning, std::int32_t rank = -1, Sink sink = {});

  // A copy whose lines begin with the name of what they are about.
  [[nodiscard]] Log about(std::string_view subject) const;

  void log(LogLevel level, std::string_view text) const;
  void debug(std::string_view text) const { log(LogLevel::kDebug, text); }
  void info(std::string_view text) const { log(LogLevel::kInfo, text); }
  void warning(std::string_view text) const { log(LogLevel::kWarning, text); }
  void error(std::string_view text) const { log(LogLevel::kError, text); }

  // Says how many lines were lost, if standard error has room by now.
  void catch_up() const {
    if (writer_) writer_->catch_up();
  }

  [[nodiscard]] bool wants(LogLevel level) const { return level >= level_; }

 private:
  LogLevel level_;
  std::string prefix_;
  std::string subject_;                 // with what divides it from the text
  std::shared_ptr<LineWriter> writer_;  // null where the caller has a sink of its own
  Sink sink_;
};

// A process may be started with descriptors 0, 1 or 2 closed (a daemon, `>&-`, a batch prologue).
// The next that is opened takes that number, and what the program prints goes into it: into the
// memory of the board, say. This opens /dev/null for each of the three that is closed. They stay
// open until the process ends, in its children too. Whatever opens descriptors, or loads a library
// that does, calls it first.
//
// Thread safety: may be called from any thread.
void take_standard_descriptors();

// Whether 2 was open when this library was loaded. If it was not, a later file may have its number,
// and no line belongs there.
bool has_standard_error();

}  // namespace ronde::base
