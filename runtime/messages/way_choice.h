// SPDX-License-Identifier: Apache-2.0
// Which way the large messages of one sender take out of plain memory: through the board, which
// both ranks move together, or by the kernel's copy. The machine decides: where cores are near each
// other the board takes a third of the time, where they are far the kernel does. So both are tried,
// and tried again now and then; the bytes that arrive are the same. Where it is close the kernel
// does it: that leaves the sender's core alone, so that messages in both directions at once take
// half the time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/clock.h"

namespace ronde::runtime {

// Thread safety: one thread at a time.
class WayChoice {
 public:
  // The first kTrials of each kPeriod messages of about one size try both ways, each as often.
  static constexpr std::uint32_t kPeriod = 512;
  static constexpr std::uint32_t kTrials = 8;

  // Whether the next message of so many bytes goes by the kernel.
  [[nodiscard]] bool next_by_kernel(std::size_t bytes) {
    Size& size = size_of(bytes);
    const std::uint32_t at = size.begun++ % kPeriod;
    if (at == 0) size.board = size.kernel = {};
    // Not strictly in turns, as messages of two sizes may come.
    if (at < kTrials) return (at + 1) / 2 % 2 == 1;
    // Many may be under way before the first has arrived.
    return size.kernel.seen > 0 && size.kernel.best * 0.75 < size.board.best;
  }
  // One has arrived that way; its receive was there and its sender had offered it for so long. The
  // least of a few tells most: a neighbour on the machine only ever makes one slower.
  void took(std::size_t bytes, bool by_kernel, base::Nanoseconds time) {
    Size& size = size_of(bytes);
    Trials& way = by_kernel ? size.kernel : size.board;
    if (way.seen == kTrials / 2) return;  // as many of both
    ++way.seen;
    const auto length = static_cast<double>(std::max<std::size_t>(bytes, 1));
    way.best = std::min(way.best, static_cast<double>(time.count()) / length);
  }

 private:
  struct Trials {
    std::uint32_t seen = 0;
    double best = std::numeric_limits<double>::infinity();  // nanoseconds a byte
  };
  struct Size {
    std::uint32_t begun = 0;
    Trials board;
    Trials kernel;
  };
  // From each power of two to the next; what is larger goes with the largest.
  static constexpr std::size_t kLeast = 15;
  static constexpr std::size_t kSizes = 10;

  Size& size_of(std::size_t bytes) {
    const std::size_t power = std::bit_width(bytes | 1) - std::size_t{1};
    return sizes_[std::clamp(power, kLeast, kLeast + kSizes - 1) - kLeast];
  }

  std::array<Size, kSizes> sizes_;
};

}  // namespace ronde::runtime
