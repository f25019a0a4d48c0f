// SPDX-License-Identifier: Apache-2.0
// The fields of a meeting's messages.
#include "runtime/meet/messages.h"

#include <algorithm>
#include <chrono>

#include "base/codec.h"

namespace ronde::runtime {

using base::Status;

// Not longer than what can be added to any time.
template <typename Fields>
void patience(Fields& f, base::Is<base::Nanoseconds> auto& value) {
  auto count = value.count();
  f(count);
  if constexpr (Fields::kReads) {
    constexpr base::Nanoseconds kMost = std::chrono::hours(24 * 365);
    if (count < 0) f.fail("a negative patience");
    value = std::min(base::Nanoseconds(count), kMost);
  }
}

void fields(auto& f, base::Is<MeetingHello> auto& hello) {
  f(hello.version, hello.rank, hello.size);
  patience(f, hello.patience);
  f(hello.host_name, hello.host_identity, hello.pid, hello.job);
}
void fields(auto& f, base::Is<MeetingPart> auto& part) {
  f(part.round);
  patience(f, part.patience);
  f(part.trouble.rank, part.trouble.culprit, part.trouble.text);
  f.rest(part.bytes);
}
void fields(auto& f, base::Is<MeetingAll> auto& all) { f(all.round, all.parts); }
void fields(auto& f, base::Is<MeetingVerdict> auto& verdict) {
  f(verdict.code, verdict.culprit, verdict.text);
}
void fields(auto& f, base::Is<MeetingAnswer> auto& answer) { f(answer.all, answer.verdict); }
void fields(auto& f, base::Is<MeetingMessage> auto& message) {
  f.one_of(message, 1, "an unknown kind");
}

MeetingVerdict MeetingVerdict::of(const Status& status) {
  return {status.code(), status.rank().value_or(-1), status.message()};
}

Status MeetingVerdict::status() const {
  const Status status = Status::error(code, text);
  return culprit >= 0 ? status.with_rank(culprit) : status;
}

std::vector<std::byte> encode(const MeetingMessage& message) { return base::encoded(message); }

base::Result<MeetingMessage> decode_meeting_message(std::span<const std::byte> bytes) {
  auto message = base::decoded<MeetingMessage>(bytes);
  if (message.ok()) return message;
  return Status::error(base::Code::kInternal,
                       "the ranks run different versions of Ronde: use the same "
                       "libronde.so on every rank",
                       message.status());
}

}  // namespace ronde::runtime
