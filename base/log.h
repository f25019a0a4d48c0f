// SPDX-License-Identifier: Apache-2.0
// One line per event on standard error, with the rank in front. An engine owns its logger.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace ronde::base {

enum class LogLevel : std::int32_t { kTrace, kDebug, kInfo, kWarning, kError, kOff };

inline constexpr std::string_view kLogLevelNames[] = {"trace",   "debug", "info",
                                                      "warning", "error", "off"};

// Thread safety: log() may be called from any thread; each line is one write.
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

  [[nodiscard]] bool wants(LogLevel level) const { return level >= level_; }

 private:
  LogLevel level_;
  std::string prefix_;
  Sink sink_;
};

}  // namespace ronde::base
