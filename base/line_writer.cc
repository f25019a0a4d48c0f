// SPDX-License-Identifier: Apache-2.0
// How bytes are written without blocking to each kind of descriptor, without changing O_NONBLOCK on
// it: that flag belongs to everyone who has inherited the descriptor.
#include "base/line_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace ronde::base {

namespace {

constexpr int kOwnDescription = O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

std::size_t count_of(ssize_t written) {
  return written > 0 ? static_cast<std::size_t>(written) : 0;
}

// False as well for a pipe whose readers are gone: a write to it would raise SIGPIPE.
bool has_room(int fd) {
  pollfd room{fd, POLLOUT, 0};
  return ::poll(&room, 1, 0) == 1 && (room.revents & (POLLOUT | POLLERR)) == POLLOUT;
}

// What fits surely where poll() says that there is room, unless another process takes that room
// first: PIPE_BUF bytes in a pipe. Linux gives a terminal room in steps of 256 bytes; a line's end
// may become two bytes, which may need a step of their own, so poll() is asked again before it.
std::string_view next_piece(std::string_view bytes, bool is_pipe) {
  constexpr std::size_t kTerminalStep = 256;
  if (is_pipe) return bytes.substr(0, PIPE_BUF);
  const std::size_t text = std::min(bytes.find('\n'), kTerminalStep);
  return bytes.substr(0, std::max(text, std::size_t{1}));
}

std::size_t put_piece_by_piece(int fd, std::string_view bytes, bool is_pipe) {
  std::size_t put = 0;
  while (put < bytes.size() && has_room(fd)) {
    const std::string_view piece = next_piece(bytes.substr(put), is_pipe);
    const std::size_t written = count_of(::write(fd, piece.data(), piece.size()));
    if (written == 0) break;
    put += written;
  }
  return put;
}

// Returns -1 if this is not the terminal that `path` opens.
int open_same_terminal(int fd, const char* path) {
  const int own = ::open(path, kOwnDescription);
  unsigned device = 0;
  unsigned opened = 0;
  if (own < 0 || (::ioctl(fd, TIOCGDEV, &device) == 0 && ::ioctl(own, TIOCGDEV, &opened) == 0 &&
                  device == opened)) {
    return own;
  }
  ::close(own);
  return -1;
}

// Opening a pipe or a terminal again gives a description of one's own, which may be non-blocking:
// then no other writer can take the room between the question and the write. A process that has
// changed its user may not open its terminal again, but may open it as its controlling terminal.
std::size_t put_through_own_description(int fd, bool is_pipe, std::string_view bytes) {
  if (!has_room(fd)) return 0;
  int own = ::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), kOwnDescription);
  if (own < 0 && !is_pipe) own = open_same_terminal(fd, "/dev/tty");
  if (own < 0) return put_piece_by_piece(fd, bytes, is_pipe);
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
