// SPDX-License-Identifier: Apache-2.0
// How a line of the log is built and written in one piece.
#include "base/log.h"

#include <unistd.h>

namespace ronde::base {

namespace {

// One write(2) per line: lines of ranks that share a terminal do not mix, and a line is out even
// when the process is killed right after.
void write_to_standard_error(std::string_view line) {
  while (!line.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
    if (written <= 0) return;  // there is no other place to report this
    line.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

Log::Log(LogLevel level, std::int32_t rank, Sink sink)
    : level_(level),
      prefix_(rank < 0 ? std::string("ronde") : "ronde[rank " + std::to_string(rank) + "]"),
      sink_(sink ? std::move(sink) : Sink(write_to_standard_error)) {}

void Log::log(LogLevel level, std::string_view text) const {
  if (!wants(level) || level == LogLevel::kOff) return;
  std::string line = prefix_;
  line += ' ';
  line += kLogLevelNames[static_cast<std::size_t>(level)];
  line += ": ";
  line += text;
  line += '\n';
  sink_(line);
}

}  // namespace ronde::base
