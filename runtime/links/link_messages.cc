// SPDX-License-Identifier: Apache-2.0
// The fields of the messages between leaders.
#include "runtime/links/link_messages.h"

#include <array>
#include <cstdint>
#include <type_traits>

#include "base/codec.h"

namespace ronde::collectives {

void fields(auto& f, base::Is<FailureRecord> auto& record) {
  f(record.culprit, record.reporter, record.code, record.text, record.place);
}

}  // namespace ronde::collectives

namespace ronde::runtime {

void fields(auto& f, base::Is<StepSpan::End> auto& end) { f(end.step, end.rank); }
void fields(auto& f, base::Is<ArrivalSpan> auto& span) {
  std::array<std::int64_t, 5> times{span.first.count(), span.last.count(), span.last_waited.count(),
                                    span.earliest.count(), span.latest.count()};
  f(times, span.last_rank, span.latest_rank);
  if constexpr (std::remove_reference_t<decltype(f)>::kReads) {
    span.first = base::Instant(times[0]);
    span.last = base::Instant(times[1]);
    span.last_waited = base::Nanoseconds(times[2]);
    span.earliest = base::Instant(times[3]);
    span.latest = base::Instant(times[4]);
  }
}
void fields(auto& f, base::Is<LeaderHello> auto& hello) { f(hello.version, hello.host); }
void fields(auto& f, base::Is<RelayedAnnouncement> auto& relayed) {
  f(relayed.rank);
  f.rest(relayed.announcement);
}
void fields(auto& f, base::Is<ReadyReport> auto& ready) {
  f(ready.entry, ready.generation, ready.steps.low, ready.steps.high, ready.arrivals);
}
void fields(auto& f, base::Is<ClosedReport> auto& closed) {
  f(closed.entry, closed.generation, closed.arrived, closed.ranks, closed.steps);
}
void fields(auto& f, base::Is<RelayedDecision> auto& relayed) { f.rest(relayed.decision); }
void fields(auto& f, base::Is<RollCall> auto& call) { f(call.answer); }
void fields(auto& /*f*/, base::Is<GoodBye> auto& /*good_bye*/) {}
void fields(auto& f, base::Is<Frame> auto& frame) {
  f(frame.number, frame.from, frame.to);
  f.rest(frame.message);
}
void fields(auto& f, base::Is<LinkMessage> auto& message) {
  f.one_of(message, 64, "an unknown kind of message between hosts");
}

std::vector<std::byte> encode(const LinkMessage& message) { return base::encoded(message); }

base::Result<LinkMessage> decode_link_message(std::span<const std::byte> bytes) {
  return base::decoded<LinkMessage>(bytes);
}

std::vector<std::byte> encode(const LeaderHello& hello) { return base::encoded(hello); }

base::Result<LeaderHello> decode_leader_hello(std::span<const std::byte> bytes) {
  return base::decoded<LeaderHello>(bytes);
}

}  // namespace ronde::runtime
