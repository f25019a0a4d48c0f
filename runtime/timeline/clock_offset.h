// SPDX-License-Identifier: Apache-2.0
// How far the clocks of two hosts are apart. Ranks exchange what their clocks show: nobody has an
// answer before it was sent, in either direction, which bounds the difference from both sides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/job_shape.h"
#include "base/status.h"

namespace ronde::runtime {

struct ClockOffset {
  base::Nanoseconds offset{};  // what is added to this host's clock to have the first host's
  base::Nanoseconds error{};   // how far that may be wrong at most
};

// What a rank's clock showed when it sent its part of an exchange, and when it had the others'.
struct ClockReading {
  base::Instant sent{};
  base::Instant received{};
};

// The offset of `host`, from exchanges in which every rank took part: rounds[k][r] is rank r's
// reading of exchange k. Pure; without a round, and for the first host, it is 0.
[[nodiscard]] ClockOffset offset_of(std::int32_t host, const base::JobShape& shape,
                                    std::span<const std::vector<ClockReading>> rounds);

// From one question to a rank of the first host, and its answer with what its clock showed. Pure.
[[nodiscard]] inline ClockOffset offset_of_answer(base::Instant sent, base::Instant theirs,
                                                  base::Instant received) {
  return {theirs - (sent + (received - sent) / 2), (received - sent + base::Nanoseconds(1)) / 2};
}

// The tightest of a few exchanges counts: one may be slow.
inline constexpr int kClockExchanges = 4;

// Collective: exchanges a few times, where there are several hosts. exchange: returns every rank's
// bytes, by rank.
using ExchangeBytes =
    std::function<base::Result<std::vector<std::vector<std::byte>>>(std::span<const std::byte>)>;
base::Result<ClockOffset> measure_offset(std::int32_t host, const base::JobShape& shape,
                                         const base::Clock& clock, const ExchangeBytes& exchange);

}  // namespace ronde::runtime
