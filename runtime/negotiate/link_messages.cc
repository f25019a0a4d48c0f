// SPDX-License-Identifier: Apache-2.0
// The layout in bytes of the messages between leaders, kind by kind.
#include "runtime/negotiate/link_messages.h"

#include <utility>

#include "runtime/negotiate/message_codec.h"

namespace ronde::runtime {

namespace {

enum class LinkKind : std::uint8_t {
  kAnnouncement = 64,
  kReady = 65,
  kClosed = 66,
  kDecision = 67,
  kFailure = 68,
  kRollCall = 69,
  kGoodBye = 70,
};

struct EncodeLink {
  std::vector<std::byte> operator()(const RelayedAnnouncement& value) const {
    Encoder out(LinkKind::kAnnouncement);
    out.number(value.rank);
    out.rest(value.announcement);
    return out.take();
  }
  std::vector<std::byte> operator()(const ReadyReport& value) const {
    Encoder out(LinkKind::kReady);
    out.number(value.entry);
    out.number(value.generation);
    for (const StepSpan::End& end : {value.steps.low, value.steps.high}) {
      out.number(end.step.word());
      out.number(end.rank);
    }
    return out.take();
  }
  std::vector<std::byte> operator()(const ClosedReport& value) const {
    Encoder out(LinkKind::kClosed);
    out.number(value.entry);
    out.number(value.generation);
    out.number(value.arrived);
    out.list(value.ranks);
    out.list(value.steps);
    return out.take();
  }
  std::vector<std::byte> operator()(const RelayedDecision& value) const {
    Encoder out(LinkKind::kDecision);
    out.rest(value.decision);
    return out.take();
  }
  std::vector<std::byte> operator()(const RollCall& value) const {
    Encoder out(LinkKind::kRollCall);
    out.number(static_cast<std::uint8_t>(value.answer));
    return out.take();
  }
  std::vector<std::byte> operator()(const GoodBye& /*value*/) const {
    return Encoder(LinkKind::kGoodBye).take();
  }
  std::vector<std::byte> operator()(const collectives::FailureRecord& value) const {
    Encoder out(LinkKind::kFailure);
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

std::vector<std::byte> encode(const LinkMessage& message) {
  return std::visit(EncodeLink{}, message);
}

base::Result<LinkMessage> decode_link_message(std::span<const std::byte> bytes) {
  Decoder in(bytes);
  LinkMessage result;
  switch (static_cast<LinkKind>(in.number<std::uint8_t>())) {
    case LinkKind::kAnnouncement: {
      RelayedAnnouncement value;
      value.rank = in.number<std::int32_t>();
      value.announcement = in.rest();
      result = std::move(value);
      break;
    }
    case LinkKind::kReady: {
      ReadyReport value;
      value.entry = in.number<std::int32_t>();
      value.generation = in.number<std::uint32_t>();
      for (StepSpan::End* const end : {&value.steps.low, &value.steps.high}) {
        end->step = StepNumber::of_word(in.number<std::uint64_t>());
        end->rank = in.number<std::int32_t>();
      }
      result = value;
      break;
    }
    case LinkKind::kClosed: {
      ClosedReport value;
      value.entry = in.number<std::int32_t>();
      value.generation = in.number<std::uint32_t>();
      value.arrived = in.number<std::uint32_t>();
      value.ranks = in.list();
      value.steps = in.list();
      result = std::move(value);
      break;
    }
    case LinkKind::kDecision:
      result = RelayedDecision{in.rest()};
      break;
    case LinkKind::kRollCall:
      result = RollCall{in.boolean()};
      break;
    case LinkKind::kGoodBye:
      result = GoodBye{};
      break;
    case LinkKind::kFailure:
      result = decode_failure(in);
      break;
    default:
      in.fail("an unknown kind of message between hosts");
  }
  RONDE_RETURN_IF_ERROR(in.finish());
  return result;
}

}  // namespace ronde::runtime
