// SPDX-License-Identifier: Apache-2.0
// The hello: with it two leaders prove that they belong to the same job, and tell which host each
// leads. A child sends the job's secret; the parent answers with the secret's bytes inverted, which
// shows that it knows the secret and does not only send back what it received.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/process/file_descriptor.h"

namespace ronde::runtime {

using JobSecret = std::array<std::byte, 16>;

inline constexpr std::uint32_t kLeaderProtocolVersion = 2;

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
// Nothing if the size is wrong or the magic is missing. The caller checks version and secret.
[[nodiscard]] std::optional<LeaderHello> decode_hello(std::span<const std::byte> bytes);
// Whether bytes that have arrived so far can become a hello.
[[nodiscard]] bool may_become_hello(std::span<const std::byte> bytes);

[[nodiscard]] JobSecret inverted(const JobSecret& secret);

// Reads a hello that arrives in pieces, and not one byte more, because frames follow it. The socket
// stays the caller's; no function blocks.
//
// Thread safety: none; one thread uses it.
class HelloReader {
 public:
  enum class Got : std::uint8_t {
    kPart,     // wait for more
    kHello,    // hello() has it
    kGarbage,  // the bytes cannot become a hello
    kEnd,      // the connection ended before a whole hello
  };

  // Reads what has arrived.
  Got read(const base::FileDescriptor& socket);
  [[nodiscard]] const LeaderHello& hello() const { return hello_; }

 private:
  HelloBytes bytes_{};
  std::size_t size_ = 0;
  LeaderHello hello_;
};

// Sends a hello on a new connection, which always has room for one. False: the connection has
// ended.
[[nodiscard]] bool send_hello(const base::FileDescriptor& socket, const LeaderHello& hello);

}  // namespace ronde::runtime
