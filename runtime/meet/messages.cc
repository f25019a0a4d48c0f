// SPDX-License-Identifier: Apache-2.0
// The layout in bytes of a meeting's messages, kind by kind.
#include "runtime/meet/messages.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/numbers.h"
#include "runtime/negotiate/message_codec.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

enum class Kind : std::uint8_t { kNone = 0, kHello = 1, kPart = 2, kAll = 3, kVerdict = 4 };

void put_bytes(Encoder& out, std::span<const std::byte> bytes) {
  out.number(base::narrow<std::uint32_t>(bytes.size()));
  out.rest(bytes);
}

struct EncodeMeeting {
  std::vector<std::byte> operator()(const MeetingHello& value) const {
    Encoder out(Kind::kHello);
    out.number(value.version);
    out.number(value.rank);
    out.number(value.size);
    out.number(value.patience.count());
    out.text(value.host_name);
    out.text(value.host_identity);
    out.number(value.pid);
    return out.take();
  }
  std::vector<std::byte> operator()(const MeetingPart& value) const {
    Encoder out(Kind::kPart);
    out.number(value.round);
    out.number(value.patience.count());
    out.number(value.trouble.rank);
    out.number(value.trouble.culprit);
    out.text(value.trouble.text);
    out.rest(value.bytes);
    return out.take();
  }
  std::vector<std::byte> operator()(const MeetingAll& value) const {
    Encoder out(Kind::kAll);
    out.number(value.round);
    out.number(base::narrow<std::uint32_t>(value.parts.size()));
    for (const auto& part : value.parts) put_bytes(out, part);
    return out.take();
  }
  std::vector<std::byte> operator()(const MeetingVerdict& value) const {
    Encoder out(Kind::kVerdict);
    out.number(value.code);
    out.number(value.culprit);
    out.text(value.text);
    return out.take();
  }
};

// Not longer than what can be added to any time.
base::Nanoseconds patience(Decoder& in) {
  constexpr base::Nanoseconds kMost = std::chrono::hours(24 * 365);
  const auto value = in.number<std::int64_t>();
  if (value < 0) in.fail("a negative patience");
  return std::min(base::Nanoseconds(value), kMost);
}

std::vector<std::byte> bytes_of(Decoder& in) {
  const std::string text = in.text();
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

MeetingHello hello_of(Decoder& in) {
  MeetingHello value;
  value.version = in.number<std::uint32_t>();
  value.rank = in.number<std::int32_t>();
  value.size = in.number<std::int32_t>();
  value.patience = patience(in);
  value.host_name = in.text();
  value.host_identity = in.text();
  value.pid = in.number<std::int64_t>();
  return value;
}

MeetingPart part_of(Decoder& in) {
  MeetingPart value;
  value.round = in.number<std::uint32_t>();
  value.patience = patience(in);
  value.trouble.rank = in.number<std::int32_t>();
  value.trouble.culprit = in.number<std::int32_t>();
  value.trouble.text = in.text();
  value.bytes = in.rest();
  return value;
}

MeetingAll all_of(Decoder& in) {
  MeetingAll value;
  value.round = in.number<std::uint32_t>();
  const auto count = in.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && !in.failed(); ++i) value.parts.push_back(bytes_of(in));
  return value;
}

MeetingVerdict verdict_of(Decoder& in) {
  MeetingVerdict value;
  value.code = in.code();
  value.culprit = in.number<std::int32_t>();
  value.text = in.text();
  return value;
}

}  // namespace

MeetingVerdict MeetingVerdict::of(const Status& status) {
  return {status.code(), status.rank().value_or(-1), status.message()};
}

Status MeetingVerdict::status() const {
  const Status status = Status::error(code, text);
  return culprit >= 0 ? status.with_rank(culprit) : status;
}

std::vector<std::byte> encode(const MeetingMessage& message) {
  return std::visit(EncodeMeeting(), message);
}

Result<MeetingMessage> decode_meeting_message(std::span<const std::byte> bytes) {
  Decoder in(bytes);
  MeetingMessage message;
  switch (in.number<Kind>()) {
    case Kind::kHello:
      message = hello_of(in);
      break;
    case Kind::kPart:
      message = part_of(in);
      break;
    case Kind::kAll:
      message = all_of(in);
      break;
    case Kind::kVerdict:
      message = verdict_of(in);
      break;
    case Kind::kNone:
    default:
      in.fail("an unknown kind");
      break;
  }
  const Status whole = in.finish();
  if (!whole.ok()) {
    return Status::error(Code::kInternal,
                         "the ranks run different versions of Ronde: use the same "
                         "libronde.so on every rank",
                         whole);
  }
  return message;
}

}  // namespace ronde::runtime
