// SPDX-License-Identifier: Apache-2.0
// Descriptors that forked children do not keep: they are closed by a handler of pthread_atfork.
#include "base/process/file_descriptor.h"

#include <poll.h>
#include <pthread.h>

#include <cerrno>
#include <iterator>

#include "base/mutex.h"

namespace ronde::base {

namespace {

// The descriptors that a child closes. There is one list for the process, and no engine owns it:
// fork() copies the descriptors of all engines, and it calls its handlers without an argument that
// could name one. The list is never destroyed, because a program may own engines that are.
class ClosedInChildren {
 public:
  using Place = std::list<int>::iterator;

  static ClosedInChildren& of_process() {
    static ClosedInChildren& closed = *new ClosedInChildren;
    return closed;
  }

  // The error of pthread_atfork, or 0.
  [[nodiscard]] int error() const { return error_; }

  // No child is forked between the opening of a descriptor and its listing.
  std::optional<Place> add(const std::function<int()>& open) {
    // Nothing is allocated under the lock: a handler of another library may hold the allocator's
    // lock while fork() waits for this one.
    std::list<int> one(1, -1);
    const MutexLock lock(mutex_);
    one.front() = open();
    if (one.front() < 0) return std::nullopt;
    open_.splice(open_.begin(), one);
    return open_.begin();
  }

  void close(Place place) {
    std::list<int> one;
    const MutexLock lock(mutex_);
    // In a child it was closed, and the number may be another file's by now.
    if (*place >= 0) ::close(*place);
    one.splice(one.begin(), open_, place);
  }

 private:
  ClosedInChildren() : error_(::pthread_atfork(lock, unlock, close_all)) {}

  // The handlers: before fork(), and after it in the parent and in the child.
  static void lock() RONDE_THREAD_ANNOTATION(no_thread_safety_analysis) {
    of_process().mutex_.lock();
  }
  static void unlock() RONDE_THREAD_ANNOTATION(no_thread_safety_analysis) {
    of_process().mutex_.unlock();
  }
  static void close_all() RONDE_THREAD_ANNOTATION(no_thread_safety_analysis) {
    // Between fork() and exec() only calls that are safe in a signal handler are allowed.
    for (int& fd : of_process().open_) {
      ::close(fd);
      fd = -1;
    }
    unlock();
  }

  Mutex mutex_;
  std::list<int> open_ RONDE_GUARDED_BY(mutex_);
  const int error_;
};

}  // namespace

FileDescriptor FileDescriptor::kept_from_children(const std::function<int()>& open) {
  ClosedInChildren& closed = ClosedInChildren::of_process();
  FileDescriptor descriptor;
  if (closed.error() != 0) {
    errno = closed.error();
    return descriptor;
  }
  int error = 0;
  descriptor.listed_ = closed.add([&] {
    const int fd = open();
    error = errno;
    return fd;
  });
  if (descriptor.listed_) descriptor.fd_ = **descriptor.listed_;
  errno = error;
  return descriptor;
}

void FileDescriptor::close_listed() {
  ClosedInChildren::of_process().close(*std::exchange(listed_, std::nullopt));
}

bool wait_until_ready(const FileDescriptor& fd, short events, const Clock& clock,
                      Instant deadline) {
  while (clock.now() < deadline) {
    pollfd entry{fd.get(), events, 0};
    if (::poll(&entry, 1, poll_milliseconds(clock, deadline)) > 0) return true;
  }
  return false;
}

}  // namespace ronde::base
