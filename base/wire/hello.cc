// SPDX-License-Identifier: Apache-2.0
// Reading and sending the beginning of a connection.
#include "base/wire/hello.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/numbers.h"

namespace ronde::base {

namespace {

using Got = HelloReader::Got;

bool send_all(const FileDescriptor& socket, std::span<const std::byte> bytes) {
  return ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         std::ssize(bytes);
}

}  // namespace

bool HelloReader::begin(const FileDescriptor& socket) const {
  return send_all(socket, handshake_.begin());
}

Got HelloReader::fill(const FileDescriptor& socket) {
  while (size_ < bytes_.size()) {
    const ssize_t got =
        ::recv(socket.get(), bytes_.data() + size_, bytes_.size() - size_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Got::kPart;
    if (got <= 0) return Got::kEnd;
    size_ += narrow<std::size_t>(got);
    arrived_ = size_;
  }
  size_ = 0;
  return Got::kHello;
}

Got HelloReader::prove(const FileDescriptor& socket) {
  for (;;) {
    bytes_.resize(handshake_.wants());
    const Got got = fill(socket);
    if (!handshake_.opened() && !Handshake::may_begin(std::span(bytes_).first(arrived_))) {
      return Got::kGarbage;
    }
    if (got != Got::kHello) return got;
    std::vector<std::byte> answer;
    const auto step = handshake_.take(bytes_, answer);
    if (!answer.empty() && !send_all(socket, answer)) return Got::kEnd;
    switch (step) {
      case Handshake::Step::kGoOn:
        continue;
      case Handshake::Step::kGarbage:
        return Got::kGarbage;
      case Handshake::Step::kVersion:
        return Got::kVersion;
      case Handshake::Step::kWrongSecret:
        return Got::kSecret;
      case Handshake::Step::kProven:
        proven_ = true;
        bytes_.resize(sizeof(std::uint32_t));
        return Got::kProven;
    }
  }
}

Got HelloReader::read(const FileDescriptor& socket) {
  if (!proven_) return prove(socket);
  if (const Got got = fill(socket); got != Got::kHello) return got;
  if (has_length_) return Got::kHello;
  std::uint32_t length = 0;
  std::memcpy(&length, bytes_.data(), sizeof length);
  if (length == 0 || length > kLongestHello) return Got::kGarbage;
  has_length_ = true;
  bytes_.resize(length);
  return fill(socket);
}

bool send_hello(const FileDescriptor& socket, std::span<const std::byte> hello) {
  const auto length = narrow<std::uint32_t>(hello.size());
  std::vector<std::byte> frame(sizeof length);
  std::memcpy(frame.data(), &length, sizeof length);
  frame.insert(frame.end(), hello.begin(), hello.end());
  return send_all(socket, frame);
}

Result<Got> prove_to(const FileDescriptor& listener, std::span<const std::byte> secret,
                     const Clock& clock, Instant deadline) {
  RONDE_ASSIGN_OR_RETURN(const auto nonce, make_nonce());
  HelloReader reader(Handshake::Role::kCaller, secret, nonce);
  Got got = reader.begin(listener) ? Got::kPart : Got::kEnd;
  while (got == Got::kPart && wait_until_ready(listener, POLLIN, clock, deadline)) {
    got = reader.read(listener);
  }
  return got;
}

}  // namespace ronde::base
