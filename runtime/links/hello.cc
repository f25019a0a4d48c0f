// SPDX-License-Identifier: Apache-2.0
// The bytes of a hello, and reading and sending them.
#include "runtime/links/hello.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/check.h"
#include "base/codec.h"

namespace ronde::runtime {

namespace {

constexpr std::string_view kMagic = "RondeLdr";

}  // namespace

// Every version must be able to read these.
void fields(auto& f, base::Is<LeaderHello> auto& hello) {
  f.magic(kMagic);
  f(hello.version, hello.host, hello.secret);
}

HelloBytes encode_hello(const LeaderHello& hello) {
  HelloBytes bytes{};
  const auto encoded = base::encoded(hello);
  base::check_eq(encoded.size(), bytes.size(), "encode_hello: all fields, and nothing else");
  std::copy(encoded.begin(), encoded.end(), bytes.begin());
  return bytes;
}

std::optional<LeaderHello> decode_hello(std::span<const std::byte> bytes) {
  const auto hello = base::decoded<LeaderHello>(bytes);
  return hello.ok() ? std::optional(*hello) : std::nullopt;
}

bool may_become_hello(std::span<const std::byte> bytes) {
  const auto magic = std::as_bytes(std::span(kMagic.substr(0, bytes.size())));
  return bytes.size() <= kHelloBytes && std::equal(magic.begin(), magic.end(), bytes.begin());
}

JobSecret inverted(const JobSecret& secret) {
  JobSecret result{};
  std::transform(secret.begin(), secret.end(), result.begin(),
                 [](std::byte byte) { return ~byte; });
  return result;
}

HelloReader::Got HelloReader::read(const base::FileDescriptor& socket) {
  while (size_ < kHelloBytes) {
    const ssize_t got =
        ::recv(socket.get(), bytes_.data() + size_, kHelloBytes - size_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Got::kPart;
    if (got <= 0) return Got::kEnd;
    size_ += base::narrow<std::size_t>(got);
    if (!may_become_hello(std::span(bytes_).first(size_))) return Got::kGarbage;
  }
  const auto hello = decode_hello(bytes_);
  if (!hello) return Got::kGarbage;
  hello_ = *hello;
  return Got::kHello;
}

bool send_hello(const base::FileDescriptor& socket, const LeaderHello& hello) {
  const HelloBytes bytes = encode_hello(hello);
  for (;;) {
    const ssize_t sent =
        ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    return sent == static_cast<ssize_t>(bytes.size());
  }
}

}  // namespace ronde::runtime
