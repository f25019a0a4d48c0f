// SPDX-License-Identifier: Apache-2.0
// The layout in bytes of announcements and decisions, kind by kind; message_codec.h has the fields.
#include "runtime/negotiate/messages.h"

#include "base/numbers.h"
#include "runtime/negotiate/message_codec.h"

namespace ronde::runtime {

namespace {

enum class Kind : std::uint8_t {
  kRequest = 1,
  kClosing = 2,
  kStalled = 3,
  kBind = 16,
  kEvict = 17,
  kError = 18,
  kNotice = 19,
  kBatch = 20,
  kDeparted = 21,
  kClose = 22,
};

struct Encode {
  std::vector<std::byte> operator()(const RequestAnnouncement& value) const {
    Encoder out(Kind::kRequest);
    out.text(value.name);
    out.text(value.place);
    out.signature(value.signature);
    out.number(value.step.word());
    return out.take();
  }
  std::vector<std::byte> operator()(const ClosingAnnouncement& value) const {
    Encoder out(Kind::kClosing);
    out.number(static_cast<std::uint8_t>(value.forced));
    out.number(value.step.word());
    return out.take();
  }
  std::vector<std::byte> operator()(const StalledAnnouncement& value) const {
    Encoder out(Kind::kStalled);
    out.number(base::narrow<std::uint32_t>(value.tensors.size()));
    for (const LateTensor& tensor : value.tensors) {
      out.text(tensor.name);
      out.number(tensor.waited_ns);
    }
    out.number(static_cast<std::uint8_t>(value.in_batch));
    out.number(static_cast<std::uint8_t>(value.failed));
    return out.take();
  }
  std::vector<std::byte> operator()(const BindDecision& value) const {
    Encoder out(Kind::kBind);
    out.number(value.entry);
    out.number(value.generation);
    out.text(value.name);
    out.tensor(value.tensor);
    return out.take();
  }
  std::vector<std::byte> operator()(const EvictDecision& value) const {
    Encoder out(Kind::kEvict);
    out.number(value.entry);
    return out.take();
  }
  std::vector<std::byte> operator()(const CloseDecision& value) const {
    Encoder out(Kind::kClose);
    out.number(value.entry);
    out.number(value.generation);
    return out.take();
  }
  std::vector<std::byte> operator()(const ErrorDecision& value) const {
    Encoder out(Kind::kError);
    out.text(value.name);
    out.number(value.code);
    out.text(value.text);
    out.text(value.place);
    out.number(value.rank);
    return out.take();
  }
  std::vector<std::byte> operator()(const NoticeDecision& value) const {
    Encoder out(Kind::kNotice);
    out.text(value.text);
    out.number(static_cast<std::uint8_t>(value.in_batch));
    return out.take();
  }
  std::vector<std::byte> operator()(const BatchDecision& value) const {
    Encoder out(Kind::kBatch);
    out.number(value.sequence);
    out.number(base::narrow<std::uint32_t>(value.items.size()));
    for (const BatchItem& item : value.items) {
      out.number(item.entry);
      if (item.entry >= 0) continue;
      out.text(item.name);
      out.tensor(item.tensor);
    }
    return out.take();
  }
  std::vector<std::byte> operator()(const DepartedDecision& value) const {
    Encoder out(Kind::kDeparted);
    out.number(value.rank);
    out.number(value.step.word());
    return out.take();
  }
};

StalledAnnouncement decode_stalled(Decoder& in) {
  StalledAnnouncement value;
  const auto count = in.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && !in.failed(); ++i) {
    std::string name = in.text();
    value.tensors.push_back({std::move(name), in.number<std::int64_t>()});
  }
  value.in_batch = in.boolean();
  value.failed = in.boolean();
  return value;
}

BatchDecision decode_batch(Decoder& in) {
  BatchDecision value;
  value.sequence = in.number<std::uint64_t>();
  const auto count = in.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && !in.failed(); ++i) {
    BatchItem item;
    item.entry = in.number<std::int32_t>();
    if (item.entry < 0) {
      item.name = in.text();
      item.tensor = in.tensor();
    }
    value.items.push_back(std::move(item));
  }
  return value;
}

}  // namespace

std::vector<std::byte> encode(const Announcement& announcement) {
  return std::visit(Encode{}, announcement);
}

std::vector<std::byte> encode(const Decision& decision) { return std::visit(Encode{}, decision); }

base::Result<Announcement> decode_announcement(std::span<const std::byte> bytes) {
  Decoder in(bytes);
  Announcement result;
  switch (static_cast<Kind>(in.number<std::uint8_t>())) {
    case Kind::kRequest: {
      RequestAnnouncement value;
      value.name = in.text();
      value.place = in.text();
      value.signature = in.signature();
      value.step = StepNumber::of_word(in.number<std::uint64_t>());
      result = std::move(value);
      break;
    }
    case Kind::kClosing: {
      ClosingAnnouncement value;
      value.forced = in.boolean();
      value.step = StepNumber::of_word(in.number<std::uint64_t>());
      result = value;
      break;
    }
    case Kind::kStalled:
      result = decode_stalled(in);
      break;
    default:
      in.fail("an unknown kind of announcement");
  }
  RONDE_RETURN_IF_ERROR(in.finish());
  return result;
}

base::Result<Decision> decode_decision(std::span<const std::byte> bytes) {
  Decoder in(bytes);
  Decision result;
  switch (static_cast<Kind>(in.number<std::uint8_t>())) {
    case Kind::kBind: {
      BindDecision value;
      value.entry = in.number<std::int32_t>();
      value.generation = in.number<std::uint32_t>();
      value.name = in.text();
      value.tensor = in.tensor();
      result = std::move(value);
      break;
    }
    case Kind::kEvict:
      result = EvictDecision{in.number<std::int32_t>()};
      break;
    case Kind::kClose: {
      CloseDecision value;
      value.entry = in.number<std::int32_t>();
      value.generation = in.number<std::uint32_t>();
      result = value;
      break;
    }
    case Kind::kError: {
      ErrorDecision value;
      value.name = in.text();
      value.code = in.code();
      value.text = in.text();
      value.place = in.text();
      value.rank = in.number<std::int32_t>();
      result = std::move(value);
      break;
    }
    case Kind::kNotice: {
      NoticeDecision value;
      value.text = in.text();
      value.in_batch = in.boolean();
      result = std::move(value);
      break;
    }
    case Kind::kBatch:
      result = decode_batch(in);
      break;
    case Kind::kDeparted: {
      DepartedDecision value;
      value.rank = in.number<std::int32_t>();
      value.step = StepNumber::of_word(in.number<std::uint64_t>());
      result = value;
      break;
    }
    default:
      in.fail("an unknown kind of decision");
  }
  RONDE_RETURN_IF_ERROR(in.finish());
  return result;
}

}  // namespace ronde::runtime
