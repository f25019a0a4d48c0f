// SPDX-License-Identifier: Apache-2.0
// The owner of a file descriptor, so that none is leaked on an error path.
#pragma once

#include <unistd.h>

#include <functional>
#include <list>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace ronde::base {

// Thread safety: a value; owned by one thread at a time. get() may be shared.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  // For a socket whose end another process must notice as soon as this one closes it or dies: every
  // child that is forked by fork() closes its copy at once. `open` returns a new descriptor, or -1
  // and errno, as this function then does; it must not block, because fork() waits for it.
  static FileDescriptor kept_from_children(const std::function<int()>& open);
  FileDescriptor(FileDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), listed_(std::exchange(other.listed_, std::nullopt)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      listed_ = std::exchange(other.listed_, std::nullopt);
    }
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  void reset() {
    if (listed_) {
      close_listed();
    } else if (fd_ >= 0) {
      ::close(fd_);
    }
    fd_ = -1;
  }

 private:
  void close_listed();

  int fd_ = -1;
  // Its place in the list of those that children close.
  std::optional<std::list<int>::iterator> listed_;
};

// Waits for poll()'s `events`. False: the deadline has passed.
[[nodiscard]] bool wait_until_ready(const FileDescriptor& fd, short events, const Clock& clock,
                                    Instant deadline);

}  // namespace ronde::base
