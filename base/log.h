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
  std::shared_ptr<LineWriter> writer_;  // null where the caller has a sink of its own
  Sink sink_;
};

}  // namespace ronde::base
