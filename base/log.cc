// SPDX-License-Identifier: Apache-2.0
// How a line of the log is built. A line that standard error had room for is out even when the
// process is killed right after.
#include "base/log.h"

#include <unistd.h>

namespace ronde::base {

Log::Log(LogLevel level, std::int32_t rank, Sink sink)
    : level_(level),
      prefix_(rank < 0 ? std::string("ronde") : "ronde[rank " + std::to_string(rank) + "]"),
      writer_(sink ? nullptr : std::make_shared<LineWriter>(STDERR_FILENO, prefix_ + " warning: ")),
      sink_(std::move(sink)) {}

void Log::log(LogLevel level, std::string_view text) const {
  if (!wants(level) || level == LogLevel::kOff) return;
  std::string line = prefix_;
  line += ' ';
  line += kLogLevelNames[static_cast<std::size_t>(level)];
  line += ": ";
  line += text;
  line += '\n';
  if (writer_) {
    writer_->write(line);
  } else {
    sink_(line);
  }
}

}  // namespace ronde::base
