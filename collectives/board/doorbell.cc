// SPDX-License-Identifier: Apache-2.0
// The system calls of a doorbell, and the order of loads and stores in ring().
#include "collectives/board/doorbell.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/numbers.h"

namespace ronde::collectives {

using base::FileDescriptor;

base::Result<FileDescriptor> make_event_fd() {
  FileDescriptor fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd.valid()) return base::Status::system("could not create an eventfd", errno);
  return fd;
}

base::Result<EventFds> make_event_fds(int ranks) {
  std::vector<FileDescriptor> fds;
  for (int rank = 0; rank < ranks; ++rank) {
    RONDE_ASSIGN_OR_RETURN(auto fd, make_event_fd());
    fds.push_back(std::move(fd));
  }
  return EventFds(std::make_shared<const std::vector<FileDescriptor>>(std::move(fds)));
}

void Doorbell::ring() const {
  if (words_ == nullptr) return;
  words_->rings.fetch_add(1, std::memory_order_seq_cst);
  // The load comes first, since ringing an agent that is awake must not take its cache line away.
  // An agent that arms after this load reads `rings` after that, and sees the new count.
  if (words_->armed.load(std::memory_order_seq_cst) == 0) return;
  if (words_->armed.exchange(0, std::memory_order_seq_cst) == 1) wake();
}

void Doorbell::wake() const {
  const int saved = errno;  // a signal handler may call ring()
  const std::uint64_t one = 1;
  // EAGAIN means that the counter is full, so the sleeper wakes anyway. No other error can be
  // handled here.
  while (::write(event_fd_, &one, sizeof one) < 0 && errno == EINTR) {
  }
  errno = saved;
}

void Doorbell::drain() const {
  std::uint64_t count = 0;
  while (::read(event_fd_, &count, sizeof count) < 0 && errno == EINTR) {
  }
}

}  // namespace ronde::collectives
