// SPDX-License-Identifier: Apache-2.0
// The messages that an end has in flight, in slots that are used again: a message allocates
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/status.h"

namespace ronde::collectives {

// What every end knows of a message in flight; ends add what the library below needs.
struct MessageSlot {
  enum class Kind : std::uint8_t { kSend, kReceive };

  Kind kind = Kind::kSend;
  bool used = false;
  int peer = 0;
  int tag = 0;
  std::size_t bytes = 0;
  std::uint32_t generation = 1;  // tells an old request of this slot from the present one
  std::uint64_t tested_in = 0;   // the number of the end's looks when test() was last called
  base::Status result;           // valid once the message has ended

  // "sending 64 bytes to rank 1 on rank 0 (tag 7)"
  [[nodiscard]] std::string text(int rank) const {
    const std::string what = kind == Kind::kSend ? "sending " : "receiving ";
    return what + std::to_string(bytes) + (kind == Kind::kSend ? " bytes to" : " bytes from") +
           " rank " + std::to_string(peer) + " on rank " + std::to_string(rank) + " (tag " +
           std::to_string(tag) + ")";
  }
};

// Slot is a MessageSlot.
//
// Thread safety: none; the end's.
template <typename Slot>
class MessageSlots {
 public:
  using Request = std::uint64_t;  // never 0

  std::size_t take(MessageSlot::Kind kind, int peer, int tag, std::size_t bytes) {
    std::size_t index = slots_.size();
    if (free_.empty()) {
      slots_.emplace_back();
      free_.reserve(slots_.size());
    } else {
      index = free_.back();
      free_.pop_back();
    }
    Slot& slot = slots_[index];
    slot.kind = kind;
    slot.peer = peer;
    slot.tag = tag;
    slot.bytes = bytes;
    return index;
  }
  void free(std::size_t index) {
    Slot& slot = slots_[index];
    slot.used = false;
    slot.tested_in = 0;
    ++slot.generation;
    free_.push_back(index);
  }

  [[nodiscard]] Request request_of(std::size_t index) const {
    return Request{slots_[index].generation} << 32U | index;
  }
  // Where the message of a request is, which must be in flight.
  [[nodiscard]] std::size_t index_of(Request request) const {
    const auto index = static_cast<std::size_t>(request & 0xFFFFFFFFU);
    base::check(index < slots_.size() && slots_[index].used &&
                    slots_[index].generation == static_cast<std::uint32_t>(request >> 32U),
                "test() of a request that is in flight");
    return index;
  }

  [[nodiscard]] Slot& operator[](std::size_t index) { return slots_[index]; }
  [[nodiscard]] auto begin() { return slots_.begin(); }
  [[nodiscard]] auto end() { return slots_.end(); }

 private:
  std::vector<Slot> slots_;
  std::vector<std::size_t> free_;
};

}  // namespace ronde::collectives
