// SPDX-License-Identifier: Apache-2.0
// A message as frames: a header of fixed size, little-endian, the text, the ids (int64) and the
// floats, raw, in any number of frames. Pure.
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
inline constexpr std::size_t kFrames = 3;  // before the frames of floats
// The sender cuts floats into frames of at most so many. For small frames the receiver reuses
// memory, while new pages cost as much as five copies; and a frame is encrypted while the one
// before is on the line.
inline constexpr std::size_t kFrameFloats = std::size_t{1} << 18U;
using Header = std::array<std::byte, kHeaderBytes>;

// A frame, and the owner of its memory.
struct Frame {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
};

[[nodiscard]] Header header_of(const Message& message);

// The floats in frames of at most kFrameFloats.
[[nodiscard]] std::vector<Floats::Part> float_frames_of(const Message& message);

// The message in these frames; or none, and the reason in `why`. Trusts no sender: the sizes must
// be those in the header, numbers finite, roles and kinds known. The floats are not copied, unless
// they are not aligned. `to` is not set.
[[nodiscard]] std::optional<Message> message_of(std::span<const Frame> frames, std::string* why);

// The name of a task on a socket, and back; none for another text.
[[nodiscard]] std::string identity_of(const Address& address);
[[nodiscard]] std::optional<Address> address_of(std::string_view identity);

}  // namespace ronde::trainer::server
