// SPDX-License-Identifier: Apache-2.0
// The fields of announcements and decisions, and which of their values cannot be.
#include "runtime/negotiate/messages.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "base/codec.h"

namespace ronde::runtime {

namespace {

constexpr std::uint8_t kFirstAnnouncement = 1;

// Nothing when a number is negative or the sum does not fit.
std::optional<std::int64_t> sum_of(const std::vector<std::int64_t>& values) {
  std::int64_t sum = 0;
  for (const std::int64_t value : values) {
    if (value < 0 || __builtin_add_overflow(sum, value, &sum)) return std::nullopt;
  }
  return sum;
}

// The elements of a shape whose bytes can be counted.
std::optional<std::int64_t> elements_of(const base::Shape& shape, base::DType dtype) {
  const auto elements = base::elements_of(shape);
  if (!elements.ok() || !base::bytes_of(*elements, dtype).ok()) return std::nullopt;
  return elements->value();
}

// Users of a signature rely on its parts fitting each other.
const char* trouble_of(const Signature& value) {
  constexpr const char* kNoSize = "a shape without a size";
  if (!elements_of(value.shape, value.dtype)) return kNoSize;
  std::vector<std::int64_t> elements;
  elements.reserve(value.members.size());
  for (const GroupMember& member : value.members) {
    const auto of_member = elements_of(member.shape, value.dtype);
    if (!of_member) return kNoSize;
    elements.push_back(*of_member);
  }
  if (row(value.operation).has_rows() && value.shape.empty()) return "rows without a dimension";
  if (!value.splits.empty() &&
      (value.shape.empty() || sum_of(value.splits) != value.shape.front())) {
    return "splits that do not add up to the rows";
  }
  if (!value.members.empty() &&
      (value.shape.size() != 1 || sum_of(elements) != value.shape.front())) {
    return "a group of another size than its members";
  }
  return nullptr;
}

const char* trouble_of(const AgreedTensor& value) {
  base::Shape whole = value.signature.shape;
  const auto rows = sum_of(value.first_dimensions);
  if (rows && !whole.empty() && !value.first_dimensions.empty()) whole[0] = *rows;
  return rows && elements_of(whole, value.signature.dtype) ? nullptr : "rows without a size";
}

const char* trouble_of(const BatchItem& item) {
  const auto& absent = item.tensor.absent;
  if (item.entry >= BatchItem::kByName) return nullptr;
  if (item.entry < BatchItem::kByNameWithAbsent || absent.empty()) return "an unknown kind of item";
  const bool ordered =
      absent.front() >= 0 &&
      std::adjacent_find(absent.begin(), absent.end(), std::greater_equal<>()) == absent.end();
  return ordered ? nullptr : "absent ranks out of order";
}

}  // namespace

// ---- parts ----

void fields(auto& f, base::Is<GroupMember> auto& member) { f(member.name, member.shape); }
void fields(auto& f, base::Is<Signature> auto& s) {
  f.among(s.operation, base::kOperations.front().operation, base::kOperations.back().operation,
          "an unknown operation");
  f(s.dtype, s.op, s.root, s.device, s.priority, s.prescale, s.postscale, s.compression);
  f(s.on_board, s.weighted, s.shape, s.splits, s.members);
  f.check([&] { return trouble_of(s); });
}
void fields(auto& f, base::Is<AgreedTensor> auto& tensor) {
  f(tensor.signature, tensor.first_dimensions);
  f.check([&] { return trouble_of(tensor); });
}
void fields(auto& f, base::Is<LateTensor> auto& late) { f(late.name, late.waited_ns); }
void fields(auto& f, base::Is<BatchItem> auto& item) {
  f(item.entry);
  if (item.entry < 0) f(item.name, item.tensor);
  if (item.entry < BatchItem::kByName) f(item.tensor.absent);
  f.check([&] { return trouble_of(item); });
}

// ---- announcements ----

void fields(auto& f, base::Is<RequestAnnouncement> auto& request) {
  f(request.name, request.place, request.signature, request.step, request.not_finite);
}
void fields(auto& f, base::Is<ClosingAnnouncement> auto& closing) {
  f(closing.forced, closing.step);
}
void fields(auto& f, base::Is<StalledAnnouncement> auto& stalled) {
  f(stalled.tensors, stalled.in_batch, stalled.failed, stalled.own_deadline);
}
void fields(auto& f, base::Is<StandingTensor> auto& tensor) { f(tensor.name, tensor.place); }
void fields(auto& f, base::Is<StandingSet> auto& set) { f(set.number, set.batches); }
void fields(auto& f, base::Is<StandingAnnouncement> auto& standing) {
  f(standing.stands, standing.moves, standing.batches, standing.tensors, standing.more,
    standing.sets, standing.frames_sent, standing.frames_taken);
}
void fields(auto& /*f*/, base::Is<JoinAnnouncement> auto& /*join*/) {}
void fields(auto& f, base::Is<SetAnnouncement> auto& set) {
  f(set.name, set.ranks, set.place, set.memory, set.trouble, set.deadline_ns);
}
void fields(auto& f, base::Is<SetEndedAnnouncement> auto& ended) { f(ended.number); }
void fields(auto& f, base::Is<FrameAnnouncement> auto& frame) {
  f(frame.number, frame.from, frame.to, frame.message);
}
void fields(auto& f, base::Is<GivenUpAnnouncement> auto& given_up) {
  f(given_up.code, given_up.text, given_up.place);
}
void fields(auto& f, base::Is<Announcement> auto& announcement) {
  f.one_of(announcement, kFirstAnnouncement, "an unknown kind of announcement");
}

// ---- decisions ----

void fields(auto& f, base::Is<BindDecision> auto& bind) {
  f(bind.entry, bind.generation, bind.name, bind.tensor);
}
void fields(auto& f, base::Is<EvictDecision> auto& evict) { f(evict.entry); }
void fields(auto& f, base::Is<ErrorDecision> auto& error) {
  f(error.name, error.code, error.text, error.place, error.rank);
}
void fields(auto& f, base::Is<NoticeDecision> auto& notice) { f(notice.text, notice.in_batch); }
void fields(auto& f, base::Is<BatchDecision> auto& batch) { f(batch.sequence, batch.items); }
void fields(auto& f, base::Is<DepartedDecision> auto& departed) {
  f(departed.rank, departed.step, departed.left);
}
void fields(auto& f, base::Is<CloseDecision> auto& close) { f(close.entry, close.generation); }
void fields(auto& f, base::Is<JoinedDecision> auto& joined) { f(joined.rank, joined.all); }
void fields(auto& f, base::Is<SetDecision> auto& set) {
  f(set.number, set.name, set.ranks, set.memory);
}
void fields(auto& f, base::Is<SetRefusedDecision> auto& refused) {
  f(refused.name, refused.told, refused.code, refused.text, refused.place, refused.rank);
}
void fields(auto& f, base::Is<SetEndedDecision> auto& ended) { f(ended.number); }
void fields(auto& f, base::Is<FrameDecision> auto& frame) {
  f(frame.number, frame.from, frame.to, frame.message);
}
void fields(auto& f, base::Is<GivenUpDecision> auto& given_up) { f(given_up.rank, given_up.why); }
void fields(auto& f, base::Is<Decision> auto& decision) {
  f.one_of(decision, 16, "an unknown kind of decision");
}

bool is_about_sets(const Decision& decision) {
  return std::holds_alternative<SetDecision>(decision) ||
         std::holds_alternative<SetRefusedDecision>(decision) ||
         std::holds_alternative<SetEndedDecision>(decision);
}

bool is_frame(std::span<const std::byte> announcement) {
  static const auto kKind =
      std::byte(kFirstAnnouncement + Announcement(FrameAnnouncement{}).index());
  return !announcement.empty() && announcement.front() == kKind;
}

std::vector<std::byte> encode(const Announcement& announcement) {
  return base::encoded(announcement);
}

std::vector<std::byte> encode(const Decision& decision) { return base::encoded(decision); }

base::Result<Announcement> decode_announcement(std::span<const std::byte> bytes) {
  return base::decoded<Announcement>(bytes);
}

base::Result<Decision> decode_decision(std::span<const std::byte> bytes) {
  return base::decoded<Decision>(bytes);
}

}  // namespace ronde::runtime
