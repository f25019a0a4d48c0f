// SPDX-License-Identifier: Apache-2.0
// How a connection begins, at every door of a job: both ends prove that they know the secret
// (handshake.h), then the one that has come says hello, in a frame, and the one that listens may
// answer with a hello of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/process/file_descriptor.h"
#include "base/status.h"
#include "base/wire/handshake.h"

namespace ronde::base {

// What both ends of a connection know.
using JobSecret = std::vector<std::byte>;

// The beginning of one connection, as its bytes arrive: reads not one byte more than that, because
// frames follow. The socket stays the caller's, the secret outlives it; no function blocks.
//
// Thread safety: none; one thread uses it.
class HelloReader {
 public:
  // Longer hellos are garbage: who is let in has a name, and no data.
  static constexpr std::size_t kLongestHello = std::size_t{64} << 10U;

  enum class Got : std::uint8_t {
    kPart,     // wait for more
    kProven,   // the other end knows the secret: say hello, and go on reading
    kHello,    // hello() has it
    kGarbage,  // the bytes are not Ronde's
    kVersion,  // they are another version's
    kSecret,   // the other end has another secret
    kEnd,      // the connection ended before a whole hello
  };

  HelloReader(Handshake::Role role, std::span<const std::byte> secret, const Nonce& nonce)
      : handshake_(role, secret, nonce) {}

  // Sends what a caller begins with. False: the connection has ended.
  [[nodiscard]] bool begin(const FileDescriptor& socket) const;
  // Reads what has arrived, and answers it.
  Got read(const FileDescriptor& socket);
  // Whether a whole opening has come.
  [[nodiscard]] bool begun() const { return handshake_.opened(); }
  [[nodiscard]] std::span<const std::byte> hello() const { return bytes_; }

 private:
  // Whether `bytes_` is full; otherwise kPart or kEnd.
  Got fill(const FileDescriptor& socket);
  Got prove(const FileDescriptor& socket);

  Handshake handshake_;
  bool proven_ = false;
  bool has_length_ = false;
  std::vector<std::byte> bytes_;  // of what is arriving
  std::size_t size_ = 0;          // that have arrived, of those that are not read yet
  std::size_t arrived_ = 0;       // of `bytes_`
};

// Sends a hello as a frame on a new connection, which always has room for a short one. False: the
// connection has ended.
[[nodiscard]] bool send_hello(const FileDescriptor& socket, std::span<const std::byte> hello);

// A caller's proof, for who has nothing else to do meanwhile. kProven: say hello; kPart: the
// deadline passed before there was an answer.
Result<HelloReader::Got> prove_to(const FileDescriptor& listener, std::span<const std::byte> secret,
                                  const Clock& clock, Instant deadline);

}  // namespace ronde::base
