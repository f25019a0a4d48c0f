// SPDX-License-Identifier: Apache-2.0
// Compares the clock of this host with that of the first one, as long as a timeline is on: clocks
// drift apart. Each rank of another host asks the leader of the first one for the time, in frames
// beside the messages, and its timeline has the new offset from then on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/member/rank_context.h"
#include "runtime/messages/record.h"
#include "runtime/timeline/clock_offset.h"
#include "runtime/timeline/timeline.h"

namespace ronde::runtime {

// Thread safety: none; only the agent uses it.
class ClockWatch {
 public:
  static constexpr base::Nanoseconds kInterval = std::chrono::minutes(1);

  using Send = std::function<base::Status(std::int32_t to, const Record& record)>;
  ClockWatch(const RankContext& context, Timeline& timeline, Send send)
      : context_(context),
        timeline_(timeline),
        send_(std::move(send)),
        asks_(context.set == nullptr && context.shape.host_of(context.rank) != kFirstHost) {}

  // Asks for the time where that is due. Call it in every step; it mostly reads a flag.
  base::Status check();
  [[nodiscard]] base::Instant next() const { return next_; }
  // A question of another rank, or the answer to one of this rank.
  base::Status on_record(std::int32_t from, const Record& record);

 private:
  static constexpr std::int32_t kFirstHost = 0;
  base::Status ask();

  const RankContext& context_;
  Timeline& timeline_;
  const Send send_;
  const bool asks_;
  base::Instant next_ = base::kNever;
  int asked_ = 0;
  ClockOffset best_;  // of the answers to the last questions
};

}  // namespace ronde::runtime
