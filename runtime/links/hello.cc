// SPDX-License-Identifier: Apache-2.0
// The bytes of a hello, and reading and sending them.
#include "runtime/links/hello.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/numbers.h"

namespace ronde::runtime {

namespace {

constexpr char kMagic[] = "RondeLdr";
constexpr std::size_t kMagicBytes = sizeof kMagic - 1;
constexpr std::size_t kVersionAt = kMagicBytes;
constexpr std::size_t kHostAt = kVersionAt + 4;
constexpr std::size_t kSecretAt = kHostAt + 4;
static_assert(kSecretAt + sizeof(JobSecret) == kHelloBytes);

void put(HelloBytes& bytes, std::size_t at, std::uint32_t number) {
  for (std::size_t i = 0; i < sizeof number; ++i) {
    bytes.at(at + i) = static_cast<std::byte>(number >> (8 * i));
  }
}

std::uint32_t get(std::span<const std::byte> bytes, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < sizeof number; ++i) {
    number |= std::to_integer<std::uint32_t>(bytes[at + i]) << (8 * i);
  }
  return number;
}

}  // namespace

HelloBytes encode_hello(const LeaderHello& hello) {
  HelloBytes bytes{};
  std::transform(kMagic, kMagic + kMagicBytes, bytes.begin(),
                 [](char letter) { return static_cast<std::byte>(letter); });
  put(bytes, kVersionAt, hello.version);
  put(bytes, kHostAt, static_cast<std::uint32_t>(hello.host));
  std::copy(hello.secret.begin(), hello.secret.end(), bytes.begin() + kSecretAt);
  return bytes;
}

std::optional<LeaderHello> decode_hello(std::span<const std::byte> bytes) {
  if (bytes.size() != kHelloBytes || !may_become_hello(bytes)) return std::nullopt;
  LeaderHello hello;
  hello.version = get(bytes, kVersionAt);
  hello.host = static_cast<std::int32_t>(get(bytes, kHostAt));
  std::copy(bytes.begin() + kSecretAt, bytes.end(), hello.secret.begin());
  return hello;
}

bool may_become_hello(std::span<const std::byte> bytes) {
  const auto magic = std::as_bytes(std::span(kMagic, std::min(bytes.size(), kMagicBytes)));
  return bytes.size() <= kHelloBytes && std::equal(magic.begin(), magic.end(), bytes.begin());
}

bool same_secret(const JobSecret& left, const JobSecret& right) {
  unsigned differences = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    differences |= std::to_integer<unsigned>(left.at(i) ^ right.at(i));
  }
  return differences == 0;
}

JobSecret inverted(const JobSecret& secret) {
  JobSecret result{};
  std::transform(secret.begin(), secret.end(), result.begin(),
                 [](std::byte byte) { return ~byte; });
  return result;
}

HelloReader::Got HelloReader::read(const collectives::FileDescriptor& socket) {
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

bool send_hello(const collectives::FileDescriptor& socket, const LeaderHello& hello) {
  const HelloBytes bytes = encode_hello(hello);
  for (;;) {
    const ssize_t sent =
        ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    return sent == static_cast<ssize_t>(bytes.size());
  }
}

}  // namespace ronde::runtime
