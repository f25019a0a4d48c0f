// SPDX-License-Identifier: Apache-2.0
// How bytes are written without blocking to each kind of descriptor, without changing O_NONBLOCK on
// it: that flag belongs to everyone who has inherited the descriptor.
#include "base/line_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>

namespace ronde::base {

namespace {

std::size_t count_of(ssize_t written) {
  return written > 0 ? static_cast<std::size_t>(written) : 0;
}

// False as well for a pipe whose readers are gone: a write to it would raise SIGPIPE.
bool has_room(int fd) {
  pollfd room{fd, POLLOUT, 0};
  return ::poll(&room, 1, 0) == 1 && (room.revents & (POLLOUT | POLLERR)) == POLLOUT;
}

// Some pipes cannot be opened again (by a process that has changed its user, or without /proc).
// A pipe with room takes PIPE_BUF bytes without blocking, unless another process takes that
// room first.
std::size_t put_piece_by_piece(int fd, std::string_view bytes) {
  std::size_t put = 0;
  while (put < bytes.size() && has_room(fd)) {
    const std::string_view piece = bytes.substr(put, PIPE_BUF);
    const std::size_t written = count_of(::write(fd, piece.data(), piece.size()));
    if (written == 0) break;
    put += written;
  }
  return put;
}

// Opening a pipe or a terminal again gives a description of one's own, which may be non-blocking:
// then no other writer can take the room between the question and the write.
std::size_t put_through_own_description(int fd, bool is_pipe, std::string_view bytes) {
  if (!has_room(fd)) return 0;
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const int own = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  // A terminal has room for one byte when poll() says so, and a longer write would block.
  if (own < 0) return is_pipe ? put_piece_by_piece(fd, bytes) : 0;
  const std::size_t put = count_of(::write(own, bytes.data(), bytes.size()));
  ::close(own);
  return put;
}

// Returns how many bytes were taken. The kind of the descriptor is asked each time, because a
// program may redirect its standard error at any time.
std::size_t put(int fd, std::string_view bytes) {
  struct stat kind {};
  if (::fstat(fd, &kind) != 0) return 0;
  if (S_ISSOCK(kind.st_mode)) {
    return count_of(::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  }
  if (S_ISFIFO(kind.st_mode) || (S_ISCHR(kind.st_mode) && ::isatty(fd) == 1)) {
    return put_through_own_description(fd, S_ISFIFO(kind.st_mode), bytes);
  }
  return count_of(::write(fd, bytes.data(), bytes.size()));
}

}  // namespace

void LineWriter::write(std::string_view line) {
  const MutexLock lock(mutex_);
  if (!settle() || !put_or_keep(line)) ++lost_;
}

void LineWriter::catch_up() {
  const MutexLock lock(mutex_);
  settle();
}

// True when nothing is owed any more, so that the next line may go out.
bool LineWriter::settle() {
  if (!rest_.empty()) {
    rest_.erase(0, put(fd_, rest_));
    if (!rest_.empty()) return false;
  }
  if (lost_ == 0) return true;
  const std::string count = lost_ == 1 ? "1 line was" : std::to_string(lost_) + " lines were";
  if (!put_or_keep(prefix_ + count + " lost here: standard error had no room for more\n")) {
    return false;
  }
  lost_ = 0;
  return rest_.empty();
}

// False: nothing of the line was written.
bool LineWriter::put_or_keep(std::string_view line) {
  const std::size_t written = put(fd_, line);
  if (written == 0) return false;
  rest_ = line.substr(written);
  return true;
}

}  // namespace ronde::base
