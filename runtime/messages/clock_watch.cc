// SPDX-License-Identifier: Apache-2.0
#include "runtime/messages/clock_watch.h"

namespace ronde::runtime {

using base::Instant;
using base::kNever;
using base::Status;

Status ClockWatch::check() {
  if (!asks_) return {};
  if (!timeline_.on()) {
    next_ = kNever;
    return {};
  }
  if (next_ != kNever && context_.clock.about_now() + base::Clock::kCoarse < next_) return {};
  const Instant now = context_.clock.now();
  if (next_ != kNever && now < next_) return {};
  next_ = now + kInterval;
  asked_ = 0;
  return ask();
}

Status ClockWatch::ask() {
  ++asked_;
  const auto sent = static_cast<std::uint64_t>(context_.clock.now().count());
  return send_(context_.shape.leader_of(kFirstHost), {.kind = RecordKind::kClock, .id = sent});
}

Status ClockWatch::on_record(std::int32_t from, const Record& record) {
  const Instant now = context_.clock.now();
  if (record.kind == RecordKind::kClock) {
    return send_(from, {.kind = RecordKind::kTime,
                        .id = record.id,
                        .address = static_cast<std::uint64_t>(now.count())});
  }
  if (!asks_) return {};
  const ClockOffset found =
      offset_of_answer(Instant(static_cast<std::int64_t>(record.id)),
                       Instant(static_cast<std::int64_t>(record.address)), now);
  if (asked_ == 1 || found.error < best_.error) best_ = found;
  if (asked_ < kClockExchanges) return ask();
  timeline_.adjust(best_);
  return {};
}

}  // namespace ronde::runtime
