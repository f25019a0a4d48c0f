// SPDX-License-Identifier: Apache-2.0
// The layout in bytes of the messages between leaders, kind by kind.
#include "runtime/negotiate/link_messages.h"

#include <utility>

#include "runtime/negotiate/message_codec.h"

namespace ronde::runtime {

namespace {

enum class Kind : std::uint8_t {
  kAnnouncement = 64,
  kReady = 65,
  kClosed = 66,
  kDecision = 67,
  kFailure = 68,
  kRollCall = 69,
  kGoodBye = 70,
};

struct Encode {
  std::vector<std::byte> operator()(const RelayedAnnouncement& value) const {
    Encoder out(Kind::kAnnouncement);
    out.number(value.rank);
    out.rest(value.announcement);
    return out.take();
  }
  std::vector<std::byte> operator()(const ReadyReport& value) const {
    Encoder out(Kind::kReady);
    out.number(value.entry);
    out.number(value.generation);
    return out.take();
  }
  std::vector<std::byte> operator()(const ClosedReport& value) const {
    Encoder out(Kind::kClosed);
    out.number(value.entry);
    out.number(value.generation);
    out.number(value.arrived);
    out.list(value.ranks);
    return out.take();
  }
  std::vector<std::byte> operator()(const RelayedDecision& value) const {
    Encoder out(Kind::kDecision);
    out.rest(value.decision);
    return out.take();
  }
  std::vector<std::byte> operator()(const RollCall& value) const {
    Encoder out(Kind::kRollCall);
    out.number(static_cast<std::uint8_t>(value.answer));
    return out.take();
  }
  std::vector<std::byte> operator()(const GoodBye& /*value*/) const {
    return Encoder(Kind::kGoodBye).take();
  }
  std::vector<std::byte> operator()(const collectives::FailureRecord& value) const {
    Encoder out(Kind::kFailure);
    out.number(value.culprit);
    out.number(value.reporter);
    out.number(value.code);
    out.text(value.text);
    out.text(value.place);
    return out.take();
  }
};

collectives::FailureRecord decode_failure(Decoder& in) {
  collectives::FailureRecord value;
  value.culprit = in.number<std::int32_t>();
  value.reporter = in.number<std::int32_t>();
  value.code = in.code();
  value.text = in.text();
  value.place = in.text();
  return value;
}

}  // namespace

std::vector<std::byte> encode(const LinkMessage& message) { return std::visit(Encode{}, message); }

base::Result<LinkMessage> decode_link_message(std::span<const std::byte> bytes) {
  Decoder in(bytes);
  LinkMessage result;
  switch (static_cast<Kind>(in.number<std::uint8_t>())) {
    case Kind::kAnnouncement: {
      RelayedAnnouncement value;
      value.rank = in.number<std::int32_t>();
      value.announcement = in.rest();
      result = std::move(value);
      break;
    }
    case Kind::kReady: {
      ReadyReport value;
      value.entry = in.number<std::int32_t>();
      value.generation = in.number<std::uint32_t>();
      result = value;
      break;
    }
    case Kind::kClosed: {
      ClosedReport value;
      value.entry = in.number<std::int32_t>();
      value.generation = in.number<std::uint32_t>();
      value.arrived = in.number<std::uint32_t>();
      value.ranks = in.list();
      result = std::move(value);
      break;
    }
    case Kind::kDecision:
      result = RelayedDecision{in.rest()};
      break;
    case Kind::kRollCall:
      result = RollCall{in.boolean()};
      break;
    case Kind::kGoodBye:
      result = GoodBye{};
      break;
    case Kind::kFailure:
      result = decode_failure(in);
      break;
    default:
      in.fail("an unknown kind of message between hosts");
  }
  RONDE_RETURN_IF_ERROR(in.finish());
  return result;
}

}  // namespace ronde::runtime
