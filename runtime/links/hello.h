// SPDX-License-Identifier: Apache-2.0
// What two leaders say when they meet: each that it is of this job, and which host it leads. A
// child says hello with the job's secret; the parent answers with the secret's bytes inverted, so
// that the child knows that the other end has it too, and does not only send back what it got.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "collectives/board/file_descriptor.h"

namespace ronde::runtime {

using JobSecret = std::array<std::byte, 16>;

inline constexpr std::uint32_t kLeaderProtocolVersion = 1;

struct LeaderHello {
  std::uint32_t version = kLeaderProtocolVersion;
  std::int32_t host = -1;
  JobSecret secret{};

  friend bool operator==(const LeaderHello&, const LeaderHello&) = default;
};

// Magic, version, host and secret; numbers are little-endian.
inline constexpr std::size_t kHelloBytes = 8 + 4 + 4 + 16;
using HelloBytes = std::array<std::byte, kHelloBytes>;

[[nodiscard]] HelloBytes encode_hello(const LeaderHello& hello);
// Nothing if it is not of this size or does not begin with the magic. Versions and secrets are the
// caller's to judge.
[[nodiscard]] std::optional<LeaderHello> decode_hello(std::span<const std::byte> bytes);
// Whether bytes that have arrived so far can become a hello.
[[nodiscard]] bool may_become_hello(std::span<const std::byte> bytes);

// In a time that does not tell how much of it is right.
[[nodiscard]] bool same_secret(const JobSecret& left, const JobSecret& right);
[[nodiscard]] JobSecret inverted(const JobSecret& secret);

// A hello that arrives in pieces. Takes not one byte more off the socket: what follows are frames.
//
// Thread safety: used by one thread.
class HelloReader {
 public:
  enum class Got : std::uint8_t {
    kPart,     // wait for more
    kHello,    // hello() has it
    kGarbage,  // it cannot become a hello
    kEnd,      // the connection has ended before
  };

  // Reads what is there.
  Got read(const collectives::FileDescriptor& socket);
  [[nodiscard]] const LeaderHello& hello() const { return hello_; }

 private:
  HelloBytes bytes_{};
  std::size_t size_ = 0;
  LeaderHello hello_;
};

// A new connection always has room for one. False: it has ended.
[[nodiscard]] bool send_hello(const collectives::FileDescriptor& socket, const LeaderHello& hello);

}  // namespace ronde::runtime
