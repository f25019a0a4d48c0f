// SPDX-License-Identifier: Apache-2.0
// How a line of the log is built. A line that standard error had room for is out even when the
// process is killed right after.
#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/text.h"

namespace ronde::base {

namespace {

bool is_open(int fd) noexcept { return ::fcntl(fd, F_GETFD) >= 0; }

const bool kHadStandardError = is_open(STDERR_FILENO);

}  // namespace

Log::Log(LogLevel level, std::int32_t rank, Sink sink)
    : level_(level),
      prefix_(rank < 0 ? std::string("ronde") : "ronde[rank " + std::to_string(rank) + "]"),
      writer_(sink ? nullptr : std::make_shared<LineWriter>(STDERR_FILENO, prefix_ + " warning: ")),
      sink_(std::move(sink)) {}

Log Log::about(std::string_view subject) const {
  Log copy = *this;
  copy.subject_ = std::string(subject) + ": ";
  return copy;
}

void Log::log(LogLevel level, std::string_view text) const {
  if (!wants(level) || level == LogLevel::kOff) return;
  if (writer_ && !has_standard_error()) return;
  std::string line = prefix_;
  line += ' ';
  line += kLogLevelNames[static_cast<std::size_t>(level)];
  line += ": ";
  line += printable(subject_);
  line += printable(text);
  line += '\n';
  if (writer_) {
    writer_->write(line);
  } else {
    sink_(line);
  }
}

void take_standard_descriptors() {
  const auto all_taken = [] {
    return is_open(STDIN_FILENO) && is_open(STDOUT_FILENO) && is_open(STDERR_FILENO);
  };
  while (!all_taken()) {
    // Not closed in programs that the process starts, which must not find them free, either.
    const int fd = ::open("/dev/null", O_RDWR | O_NOCTTY);  // NOLINT(android-cloexec-open)
    if (fd > STDERR_FILENO) ::close(fd);                    // another thread has taken the last one
    if (fd < 0) return;
  }
}

bool has_standard_error() { return kHadStandardError; }

}  // namespace ronde::base
