// SPDX-License-Identifier: Apache-2.0
// Reading and writing of frames.
#include "launcher/agent/channel.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/numbers.h"

namespace ronde::launcher {

using base::FileDescriptor;

namespace {

constexpr std::size_t kMostNoise = std::size_t{64} << 10U;

bool is_for_later(int error) { return error == EAGAIN || error == EINTR; }

}  // namespace

Channel::Channel(FileDescriptor in, FileDescriptor out) : in_(std::move(in)), out_(std::move(out)) {
  for (const int fd : {in_.get(), out_.get()}) {
    if (fd < 0) continue;
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  }
}

base::Result<Channel::Pair> Channel::make_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return base::Status::system("could not make a pair of sockets", errno);
  }
  return Pair{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

void Channel::send(std::span<const std::byte> frame) {
  if (closed_ || deaf_) return;
  const auto length = base::narrow<std::uint32_t>(frame.size());
  std::array<char, sizeof length> head{};
  std::memcpy(head.data(), &length, sizeof length);
  pending_.append(head.data(), head.size());
  pending_.append(reinterpret_cast<const char*>(frame.data()), frame.size());
  flush();
}

bool Channel::flush() {
  bool any = false;
  while (written_ < pending_.size() && !closed_) {
    const ssize_t size =
        ::write(out_.get(), pending_.data() + written_, pending_.size() - written_);
    if (size >= 0) {
      written_ += static_cast<std::size_t>(size);
      any = true;
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      deaf_ = true;
      written_ = pending_.size();
    }
  }
  // Once more than half is written fewer bytes move than were written.
  if (written_ <= pending_.size() / 2 && written_ != pending_.size()) return any;
  pending_.erase(0, std::exchange(written_, 0));
  return any;
}

void Channel::read() {
  for (;;) {
    const std::span<std::byte> room = reader_.room();
    const ssize_t size = ::read(in_.get(), room.data(), room.size());
    if (size > 0) {
      reader_.arrived(static_cast<std::size_t>(size));
      if (static_cast<std::size_t>(size) == room.size()) continue;
    } else if (size == 0 || !is_for_later(errno)) {
      closed_ = true;
    }
    return;
  }
}

// Byte by byte, since what follows the mark is frames; it is said once, and short.
bool Channel::skip_to(std::string_view mark, std::string& noise) {
  for (char byte = 0;;) {
    const ssize_t size = ::read(in_.get(), &byte, 1);
    if (size < 0 && is_for_later(errno)) return false;
    if (size <= 0 || before_.size() > kMostNoise) {
      closed_ = true;
      noise += std::exchange(before_, {});
      return false;
    }
    before_ += byte;
    if (!before_.ends_with(mark)) continue;
    before_.resize(before_.size() - mark.size());
    noise += std::exchange(before_, {});
    return true;
  }
}

}  // namespace ronde::launcher
