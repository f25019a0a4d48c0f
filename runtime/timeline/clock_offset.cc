// SPDX-License-Identifier: Apache-2.0
#include "runtime/timeline/clock_offset.h"

#include <algorithm>
#include <cstring>

namespace ronde::runtime {

using base::Code;
using base::Nanoseconds;
using base::Status;

ClockOffset offset_of(std::int32_t host, const base::JobShape& shape,
                      std::span<const std::vector<ClockReading>> rounds) {
  constexpr std::int32_t kFirstHost = 0;
  if (host == kFirstHost || rounds.empty()) return {};
  Nanoseconds least = Nanoseconds::min();
  Nanoseconds most = Nanoseconds::max();
  for (const std::vector<ClockReading>& round : rounds) {
    for (const std::int32_t theirs : shape.ranks_of(kFirstHost)) {
      for (const std::int32_t ours : shape.ranks_of(host)) {
        const ClockReading& first = round[static_cast<std::size_t>(theirs)];
        const ClockReading& own = round[static_cast<std::size_t>(ours)];
        least = std::max(least, first.sent - own.received);
        most = std::min(most, first.received - own.sent);
      }
    }
  }
  return {(least + most) / 2, (most - least) / 2};
}

base::Result<ClockOffset> measure_offset(std::int32_t host, const base::JobShape& shape,
                                         const base::Clock& clock, const ExchangeBytes& exchange) {
  if (shape.hosts() == 1) return ClockOffset{};
  std::vector<std::vector<ClockReading>> rounds;
  ClockReading before;
  // Each exchange carries the reading of the one before, so there is one more.
  for (int round = 0; round <= kClockExchanges; ++round) {
    std::vector<std::byte> mine(sizeof(before));
    std::memcpy(mine.data(), &before, sizeof(before));
    const base::Instant sent = clock.now();
    RONDE_ASSIGN_OR_RETURN(const auto all, exchange(mine));
    before = {sent, clock.now()};
    if (round == 0) continue;
    std::vector<ClockReading>& readings = rounds.emplace_back(all.size());
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank].size() != sizeof(ClockReading)) {
        return Status::error(Code::kInternal, "rank " + std::to_string(rank) +
                                                  " sent no reading of its clock: start the same "
                                                  "version of Ronde on all hosts");
      }
      std::memcpy(&readings[rank], all[rank].data(), sizeof(ClockReading));
    }
  }
  return offset_of(host, shape, rounds);
}

}  // namespace ronde::runtime
