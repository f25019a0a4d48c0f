// SPDX-License-Identifier: Apache-2.0
// Writes whole lines to a descriptor without ever blocking. A log collector that has stopped
// reading, or Ctrl-S in a terminal, must not stop a job: what does not fit is lost, and the next
// line that fits says how many lines were.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/mutex.h"

namespace ronde::base {

// Thread safety: every function may be called from any thread.
class LineWriter {
 public:
  // `fd` stays the caller's, and open. `prefix` begins the line about lost lines.
  LineWriter(int fd, std::string prefix) : fd_(fd), prefix_(std::move(prefix)) {}
  // Says what was lost, if there is room by now.
  ~LineWriter() { catch_up(); }
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Writes a line, which ends in '\n', whole or not at all. Of a line that is longer than the room
  // (in a pipe: and longer than PIPE_BUF) the rest is kept, and goes before anything else. Where
  // the pipe or terminal cannot be opened again, it may block in one case: another process takes
  // the room just before.
  void write(std::string_view line);
  // Writes what is kept, and says how many lines were lost, if there is room for that now.
  void catch_up();

 private:
  bool settle() RONDE_REQUIRES(mutex_);
  bool put_or_keep(std::string_view line) RONDE_REQUIRES(mutex_);

  const int fd_;
  const std::string prefix_;
  Mutex mutex_;
  std::string rest_ RONDE_GUARDED_BY(mutex_);  // of a line that went out in part
  std::uint64_t lost_ RONDE_GUARDED_BY(mutex_) = 0;
};

}  // namespace ronde::base
