// SPDX-License-Identifier: Apache-2.0
// A message as the frames that travel: a header of fixed size, little-endian, the text, the ids
// (int64) and the floats, raw, in any number of frames. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "bindings/trainer/server/protocol.h"

namespace ronde::trainer::server {

// The header: "RPS1", kind, role of the sender and of the origin, dropped, then the numbers
// (encoding.cc has their order) and the sizes of the other frames.
inline constexpr std::size_t kHeaderBytes = 116;
inline constexpr std::size_t kFrames = 3;  // before those of floats
// Where the sender cuts floats. A receiver takes memory for a frame as it comes: for small ones it
// has some that it has used before, while whole new pages cost as much as five copies; and one
// frame is encrypted while the one before is on the line.
inline constexpr std::size_t kFrameFloats = std::size_t{1} << 18U;
using Header = std::array<std::byte, kHeaderBytes>;

// A frame that somebody keeps alive.
struct Frame {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
};

[[nodiscard]] Header header_of(const Message& message);

// The floats in pieces of at most kFrameFloats.
[[nodiscard]] std::vector<Floats::Part> float_frames_of(const Message& message);

// The message in these frames; none, and `why`, where they are not one. Trusts nothing: sizes must
// be those that the header says, numbers finite, roles and kinds known. The floats stay where they
// are, unless they are not aligned. `to` is left as it is.
[[nodiscard]] std::optional<Message> message_of(std::span<const Frame> frames, std::string* why);

// The name of a task on a socket, and back; none for another text.
[[nodiscard]] std::string identity_of(const Address& address);
[[nodiscard]] std::optional<Address> address_of(std::string_view identity);

}  // namespace ronde::trainer::server
