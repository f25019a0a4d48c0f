// SPDX-License-Identifier: Apache-2.0
// Parsing frames, and sending and receiving them over a socket that may be full or closed.
#include "base/wire/frame_socket.h"

#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include <utility>

#include "base/numbers.h"
#include "base/wire/tcp_socket.h"

namespace ronde::base {

namespace {

static_assert(std::endian::native == std::endian::little,
              "lengths are written in the machine's order, which must be little-endian");

constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);
// A buffer that a long frame has made larger than this is freed once it is empty.
constexpr std::size_t kKeptBuffer = std::size_t{1} << 20U;

// Whether an errno means that the connection has ended, and not that the call was wrong.
bool ends_connection(int error) {
  switch (error) {
    case EPIPE:
    case ECONNRESET:
    case ECONNABORTED:
    case ECONNREFUSED:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case ENOTCONN:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::span<std::byte> FrameReader::room() {
  if (begin_ == end_) {
    begin_ = 0;
    end_ = 0;
    if (buffer_.size() > kKeptBuffer) buffer_ = {};
  } else if (begin_ >= end_ - begin_) {
    // No more bytes are moved than were returned before, so each byte is moved a bounded number of
    // times.
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) buffer_.resize(std::max(kLeastBuffer, 2 * buffer_.size()));
  return std::span(buffer_).subspan(end_);
}

Result<std::optional<std::span<const std::byte>>> FrameReader::next() {
  std::optional<std::span<const std::byte>> frame;
  if (end_ - begin_ < kLengthBytes) return frame;
  std::uint32_t length = 0;
  std::memcpy(&length, buffer_.data() + begin_, kLengthBytes);
  if (length == 0 || length > kLongestFrame) {
    return Status::error(Code::kTransport, "a frame of " + std::to_string(length) +
                                               " bytes is announced: this is not Ronde's protocol");
  }
  if (end_ - begin_ - kLengthBytes < length) return frame;
  frame = std::span<const std::byte>(buffer_).subspan(begin_ + kLengthBytes, length);
  begin_ += kLengthBytes + length;
  return frame;
}

Status FrameSocket::queue(std::span<const std::byte> frame) {
  if (frame.empty() || frame.size() > kLongestFrame) {
    return Status::error(Code::kInvalidArgument,
                         "a frame of " + std::to_string(frame.size()) + " bytes for " + peer() +
                             ": it must have 1 to " + std::to_string(kLongestFrame));
  }
  if (broken_output_) return {};
  // Written bytes are erased only once they are more than half, so fewer bytes move than were
  // written.
  if (written_ > out_.size() / 2) {
    out_.erase(out_.begin(), out_.begin() + narrow<std::ptrdiff_t>(written_));
    written_ = 0;
  }
  const auto length = narrow<std::uint32_t>(frame.size());
  const std::size_t at = out_.size();
  out_.resize(at + kLengthBytes + frame.size());
  std::memcpy(out_.data() + at, &length, kLengthBytes);
  std::memcpy(out_.data() + at + kLengthBytes, frame.data(), frame.size());
  return {};
}

Status FrameSocket::send(std::span<const std::byte> frame) {
  RONDE_RETURN_IF_ERROR(queue(frame));
  return full_ ? Status() : flush().status();
}

Result<bool> FrameSocket::flush() {
  while (backlogged()) {
    const ssize_t sent =
        ::send(fd(), out_.data() + written_, out_.size() - written_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      written_ += narrow<std::size_t>(sent);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == ENOBUFS) {
      full_ = true;
      return false;
    }
    const int error = errno;
    if (!ends_connection(error)) return Status::system("could not send to " + peer(), error);
    broken_output_ = true;
    write_error_ = error_text(error);
    drop_output();
  }
  full_ = false;
  written_ = 0;
  out_.clear();
  if (out_.capacity() > kKeptBuffer) out_ = {};
  return true;
}

void FrameSocket::drop_output() {
  out_.clear();
  written_ = 0;
}

Result<std::optional<std::span<const std::byte>>> FrameSocket::receive() {
  for (;;) {
    auto frame = reader_.next();
    if (!frame.ok()) {
      return Status::error(frame.status().code(), "the connection to " + peer() + " is damaged",
                           frame.status());
    }
    if (frame->has_value() || closed_) return frame;
    RONDE_ASSIGN_OR_RETURN(const auto more, read_some());
    if (!more) return frame;
  }
}

Result<bool> FrameSocket::read_some() {
  const std::span<std::byte> room = reader_.room();
  for (;;) {
    const ssize_t size = ::recv(fd(), room.data(), room.size(), MSG_DONTWAIT);
    if (size > 0) {
      reader_.arrived(narrow<std::size_t>(size));
      return true;
    }
    if (size == 0) {
      close_with(reader_.inside_frame() ? "closed by the other end in the middle of a frame"
                                        : "closed by the other end");
      return false;
    }
    const int error = errno;
    if (error == EINTR) continue;
    if (error == EAGAIN) {
      // After a failed write the connection has ended, so nothing more can arrive.
      if (broken_output_) close_with("");
      return false;
    }
    if (!ends_connection(error)) {
      return Status::system("could not receive from " + peer(), error);
    }
    close_with(error_text(error));
    return false;
  }
}

void FrameSocket::close_with(std::string reason) {
  closed_ = true;
  broken_output_ = true;
  // The error of an earlier write is closer to the cause.
  close_reason_ = write_error_.empty() ? std::move(reason) : write_error_;
  drop_output();
}

}  // namespace ronde::base
