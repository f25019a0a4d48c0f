// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/encoding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ronde::trainer::server {

namespace {

static_assert(std::endian::native == std::endian::little, "floats travel as they are in memory");

constexpr std::array<char, 4> kMagic{'R', 'P', 'S', '1'};

// Visits the fields of the header in their order, to write or to read them.
template <typename Visit, typename M>
void visit_fields(Visit&& visit, M& m) {
  visit(m.kind);
  visit(m.from.role);
  visit(m.origin.role);
  visit(m.dropped);
  visit(m.from.index);
  visit(m.origin.index);
  visit(m.from.incarnation);
  visit(m.origin.incarnation);
  visit(m.group);
  visit(m.sequence);
  visit(m.version);
  visit(m.weight);
  visit(m.rate);
  visit(m.view);
  visit(m.dead);
  visit(m.entry);
}

template <typename T, typename Byte>
void copy_field(T& field, Byte*& at) {
  if constexpr (std::is_const_v<Byte>) {
    std::memcpy(&field, at, sizeof field);
  } else {
    std::memcpy(at, &field, sizeof field);
  }
  at += sizeof field;
}

// Reading a bool or an enumerator from a byte of another value is undefined behaviour: these bytes
// are checked before.
bool first_bytes_are_sane(const std::byte* at) {
  const auto byte = [at](std::size_t i) { return std::to_integer<unsigned>(at[i]); };
  return byte(0) <= static_cast<unsigned>(kLastKind) &&
         byte(1) <= static_cast<unsigned>(Role::kEvaluator) &&
         byte(2) <= static_cast<unsigned>(Role::kEvaluator) && byte(3) <= 1;
}

// The floats of a frame; none if its size is no multiple of a float's.
std::optional<Floats> floats_of(const Frame& frame) {
  const auto bytes = frame.bytes;
  const std::size_t count = bytes.size() / sizeof(float);
  if (bytes.size() % sizeof(float) != 0) return {};
  if (std::bit_cast<std::uintptr_t>(bytes.data()) % alignof(float) != 0) {
    std::vector<float> aligned(count);
    std::memcpy(aligned.data(), bytes.data(), bytes.size());
    return Floats::of(std::move(aligned));
  }
  Floats floats;
  floats.add({frame.owner, {reinterpret_cast<const float*>(bytes.data()), count}});
  return floats;
}

}  // namespace

Header header_of(const Message& message) {
  Header header{};
  std::byte* at = header.data();
  std::memcpy(at, kMagic.data(), kMagic.size());
  at += kMagic.size();
  visit_fields([&at](const auto& field) { copy_field(field, at); }, message);
  std::array<std::uint64_t, 3> sizes{message.text.size(), message.ids.size(),
                                     message.floats.size()};
  copy_field(sizes, at);
  return header;
}

std::vector<Floats::Part> float_frames_of(const Message& message) {
  std::vector<Floats::Part> frames;
  for (const auto& [owner, values] : message.floats.parts()) {
    for (std::size_t at = 0; at < values.size(); at += kFrameFloats) {
      frames.push_back({owner, values.subspan(at, std::min(kFrameFloats, values.size() - at))});
    }
  }
  return frames;
}

std::optional<Message> message_of(std::span<const Frame> frames, std::string* why) {
  const auto refuse = [why](std::string text) {
    *why = std::move(text);
    return std::nullopt;
  };
  if (frames.size() < kFrames)
    return refuse(std::to_string(frames.size()) + " frames, and not 3 at least");
  if (frames[0].bytes.size() != kHeaderBytes) {
    return refuse("a header of " + std::to_string(frames[0].bytes.size()) + " bytes");
  }
  const std::byte* at = frames[0].bytes.data();
  if (std::memcmp(at, kMagic.data(), kMagic.size()) != 0)
    return refuse("a header of something else");
  at += kMagic.size();
  if (!first_bytes_are_sane(at)) return refuse("a kind, role or switch that does not exist");
  Message message;
  visit_fields([&at](auto& field) { copy_field(field, at); }, message);
  std::array<std::uint64_t, 3> sizes{};
  copy_field(sizes, at);
  if (!std::isfinite(message.weight) || message.weight < 0.0 || !std::isfinite(message.rate)) {
    return refuse("a weight or rate that is no number");
  }
  bool floats_are_whole = true;
  for (const Frame& frame : frames.subspan(kFrames)) {
    const auto floats = floats_of(frame);
    floats_are_whole = floats_are_whole && floats;
    if (floats) message.floats.add(*floats);
  }
  // Divides the received bytes, and never multiplies a received count, which might overflow.
  if (frames[1].bytes.size() != sizes[0] || frames[2].bytes.size() % sizeof(std::int64_t) != 0 ||
      frames[2].bytes.size() / sizeof(std::int64_t) != sizes[1] || !floats_are_whole ||
      message.floats.size() != sizes[2]) {
    return refuse("frames of other sizes than the header says");
  }
  message.text.assign(reinterpret_cast<const char*>(frames[1].bytes.data()),
                      frames[1].bytes.size());
  message.ids.resize(frames[2].bytes.size() / sizeof(std::int64_t));
  if (!message.ids.empty()) {
    std::memcpy(message.ids.data(), frames[2].bytes.data(), frames[2].bytes.size());
  }
  return message;
}

std::string identity_of(const Address& address) {
  constexpr std::array<char, 4> kLetters{'p', 'w', 'c', 'e'};
  return kLetters.at(static_cast<std::size_t>(address.role)) + std::to_string(address.index) + "." +
         std::to_string(address.incarnation);
}

std::optional<Address> address_of(std::string_view identity) {
  constexpr std::string_view kLetters = "pwce";
  if (identity.empty()) return {};
  const std::size_t role = kLetters.find(identity.front());
  if (role == std::string_view::npos) return {};
  const std::size_t dot = identity.find('.');
  if (dot == std::string_view::npos) return {};
  const auto index = number_of<std::uint32_t>(identity.substr(1, dot - 1));
  const auto incarnation = number_of<std::uint64_t>(identity.substr(dot + 1));
  if (!index || !incarnation) return {};
  return Address{static_cast<Role>(role), *index, *incarnation};
}

}  // namespace ronde::trainer::server
