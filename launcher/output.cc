// SPDX-License-Identifier: Apache-2.0
#include "launcher/output.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <utility>

namespace ronde::launcher {

namespace {

// With less than this waiting, more is read.
constexpr std::size_t kMostPending = std::size_t{64} << 10U;
// poll() promises room for so much in a pipe, so that a descriptor that is not our own, and blocks,
// seldom does.
constexpr std::size_t kWriteBytes = 4096;
// What is left to print at the end has so long, unless it moves on.
constexpr std::chrono::seconds kFlushTime(5);
constexpr int kFlushPollMs = 100;

bool has_room(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace

Output::Output() {
  for (Sink& sink : sinks_) open_own(sink);
}

Output::~Output() {
  for (const Sink& sink : sinks_) {
    if (sink.own) ::close(sink.fd);
  }
}

// A pipe without a reader cannot be opened again, and needs not be: it does not block.
void Output::open_own(Sink& sink) {
  struct stat kind {};
  if (::fstat(sink.fd, &kind) != 0) return;
  if (!S_ISFIFO(kind.st_mode) && !(S_ISCHR(kind.st_mode) && ::isatty(sink.fd) == 1)) return;
  const std::string path = "/proc/self/fd/" + std::to_string(sink.fd);
  const int fd = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return;
  sink.fd = fd;
  sink.own = true;
}

void Output::add(bool to_error, std::string_view bytes) {
  sinks_[to_error ? 1 : 0].pending += bytes;
}

void Output::say(const std::string& text) {
  add(true, "ronderun: " + text + "\n");
  Sink& sink = sinks_[1];
  while (sink.left() > 0 && has_room(sink.fd)) {
    const std::size_t before = sink.left();
    write_some(sink);
    if (sink.left() == before) break;
  }
}

bool Output::full() const {
  return std::any_of(sinks_.begin(), sinks_.end(),
                     [](const Sink& sink) { return sink.left() > kMostPending; });
}

void Output::add_to(std::vector<pollfd>& entries) const {
  for (const Sink& sink : sinks_) {
    if (sink.left() > 0) entries.push_back({sink.fd, POLLOUT, 0});
  }
}

void Output::serve(const std::vector<pollfd>& entries) {
  for (const pollfd& entry : entries) {
    if (entry.revents == 0) continue;
    for (Sink& sink : sinks_) {
      if (sink.fd == entry.fd) write_some(sink);
    }
  }
}

void Output::write_some(Sink& sink) {
  const char* const from = sink.pending.data() + sink.written;
  const std::size_t most = std::min(sink.left(), kWriteBytes);
  ssize_t size = ::send(sink.fd, from, most, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (size < 0 && errno == ENOTSOCK) size = ::write(sink.fd, from, most);
  if (size >= 0) {
    sink.written += static_cast<std::size_t>(size);
    // Once more than half is written fewer bytes move than were written.
    if (sink.left() < sink.written) sink.pending.erase(0, std::exchange(sink.written, 0));
  } else if (errno != EINTR && errno != EAGAIN) {
    sink.gone = sink.gone || errno == EPIPE;
    if (sink.error == 0 && errno != EPIPE) sink.error = errno;
    sink.pending.clear();
    sink.written = 0;
  }
}

void Output::flush(const base::Clock& clock) {
  base::Instant until = clock.after(kFlushTime);
  for (Sink& sink : sinks_) {
    while (sink.left() > 0 && clock.now() < until) {
      pollfd entry{sink.fd, POLLOUT, 0};
      if (::poll(&entry, 1, kFlushPollMs) <= 0) continue;
      const std::size_t before = sink.left();
      write_some(sink);
      if (sink.left() != before) until = clock.after(kFlushTime);
    }
  }
}

std::string Output::error() const {
  for (const Sink& sink : sinks_) {
    if (sink.error == 0) continue;
    return std::string("the standard ") + (&sink == &sinks_[0] ? "output" : "error") +
           " could not be written (" + std::strerror(sink.error) + "): what is missing is lost";
  }
  return "";
}

}  // namespace ronde::launcher
