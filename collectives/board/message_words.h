// SPDX-License-Identifier: Apache-2.0
// The words by which messages between two ranks begin: what each rank tells all others, beside the
// places of the channels (Board::message_place). runtime/messages/peer_protocol.h says who writes
// what, and when.
#pragma once

#include <atomic>
#include <cstdint>

#include "collectives/board/doorbell.h"

namespace ronde::collectives {

// Those of one rank.
struct alignas(kCacheLinePair) MessageWords {
  std::atomic<std::uint32_t> awaits{0};   // 1: this rank must be rung for what comes to it
  std::atomic<std::uint32_t> news{0};     // counted up by others: a channel or an end to look for
  std::atomic<std::uint32_t> closing{0};  // 1: this rank sends and receives nothing new
};

}  // namespace ronde::collectives
