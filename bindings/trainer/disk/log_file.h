// SPDX-License-Identifier: Apache-2.0
// A log that a disk may refuse for a while: it never holds half of what was written.
#pragma once

#include <string>
#include <string_view>

namespace ronde::trainer {

// As both logs state their times.
[[nodiscard]] double seconds_since_1970();

// Thread safety: belongs to one thread.
class LogFile {
 public:
  // Makes its directory where that is missing. Throws FileError where the file cannot be written.
  explicit LogFile(std::string path);

  // Appends all of it, or nothing: then failed() is true until the next call that succeeds.
  void append(std::string_view bytes);
  [[nodiscard]] bool failed() const noexcept { return error_ != 0; }
  // The errno with which the last append() has failed, or 0.
  [[nodiscard]] int error() const noexcept { return error_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  int try_append(std::string_view bytes);

  std::string path_;
  int error_ = 0;
};

}  // namespace ronde::trainer
