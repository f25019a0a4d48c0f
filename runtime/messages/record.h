// SPDX-License-Identifier: Apache-2.0
// What travels in a channel, or in a frame between hosts: a record, with bytes behind it where its
// kind has some. All of one sender's messages, and what it answers to the receiver's own, come in
// the order of its calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "base/status.h"

namespace ronde::runtime {

enum class RecordKind : std::uint8_t {
  kBytes = 1,    // a small message; its bytes follow
  kOffer = 2,    // a large one, which lies at `address`
  kDone = 3,     // answers an offer: the receiver has copied it
  kSend = 4,     // answers an offer: the receiver cannot copy it, send it in chunks
  kChunk = 5,    // the next bytes of such a message
  kRefused = 6,  // answers an offer, or bytes (id 0): nobody gets it; `code`, and a text follows
  kClosing = 7,  // the sender sends no more messages
  kTaken = 8,    // of what came from another host: `address` bytes of small ones and `id` chunks
  kAsk = 9,      // to the leader of another host: which of its ranks is stopped?
  kState = 10,   // answers that: `code` is the first, or -1; a text follows
  // Between the clocks of two hosts (clock_watch.h); no message has to do with them.
  kClock = 11,  // what does your clock show? `id`: what mine does
  kTime = 12,   // answers that: `address`, and the `id` comes back
};

struct Record {
  RecordKind kind = RecordKind::kClosing;
  base::DType dtype = base::DType::kU8;
  std::uint16_t in_arena = 0;  // 1: `address` counts from the beginning of the sender's arena
  std::int32_t code = 0;
  std::int64_t tag = 0;
  std::int64_t count = 0;     // elements
  std::uint64_t id = 0;       // of an offer, counted by its sender
  std::uint64_t address = 0;  // in the sender's process
};
static_assert(sizeof(Record) == 40);

// What came in one message of a stream; nothing where it cannot be a record.
struct Received {
  Record record;
  std::span<const std::byte> bytes;
};
[[nodiscard]] inline std::optional<Received> read_record(std::span<const std::byte> message) {
  Received received;
  if (message.size() < sizeof(Record)) return std::nullopt;
  std::memcpy(&received.record, message.data(), sizeof(Record));
  const auto& [kind, dtype, in_arena, code, tag, count, id, address] = received.record;
  if (kind < RecordKind::kBytes || kind > RecordKind::kTime) return std::nullopt;
  if (!base::dtype_from_value(static_cast<std::int64_t>(dtype)) || count < 0) return std::nullopt;
  received.bytes = message.subspan(sizeof(Record));
  return received;
}

[[nodiscard]] inline std::span<const std::byte> bytes_of(const Record& record) {
  return std::as_bytes(std::span(&record, 1));
}

}  // namespace ronde::runtime
