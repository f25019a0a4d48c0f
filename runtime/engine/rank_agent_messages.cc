// SPDX-License-Identifier: Apache-2.0
// Messages between ranks of other hosts: what comes in frames, and what goes in them.
#include <string>

#include "runtime/engine/rank_agent.h"

namespace ronde::runtime {

using base::Status;

void RankAgent::end_message(Work& work, const Status& status, bool of_job) {
  if (work.began != base::Instant{}) {
    timeline().add(TracedMessage{
        .set = context_.set == nullptr ? "" : context_.set->name,
        .sends = work.message_target >= 0,
        .peer = context_.rank_of_job(std::max(work.message_target, work.message_source)),
        .tag = work.message_tag,
        .bytes = work.message_bytes,
        .began = work.began,
        .ended = context_.clock.now(),
        .ok = status.ok()});
  }
  works_.end_message(work, context_.told(status), of_job);
}

void RankAgent::deliver(std::int32_t from, const std::vector<std::byte>& message) {
  if (from < 0) {
    if (SetLinks* const links = control_.set_links()) links->deliver(message);
    return;
  }
  ++frames_taken_;
  const auto record = read_record(message);
  const bool of_clocks = record && record->record.kind >= RecordKind::kClock;
  const Status status =
      of_clocks ? clocks_.on_record(from, record->record) : messages_.on_frame(from, message);
  if (!status.ok()) failure_.fail(status, from);
}

// The process set has been closed here, and its rank that has sent this had not heard of it.
void RankAgent::drop(const FrameDecision& frame) {
  if (frame.from < 0) return;
  ++frames_taken_;
  const auto record = read_record(frame.message);
  if (!record || record->record.kind != RecordKind::kBytes) return;
  context_.log.warning("a message of rank " + std::to_string(frame.from) +
                       " of a process set that is closed here is lost: receive it before the set "
                       "is closed");
}

// In a frame, which is announced to the leader of this host.
Status RankAgent::send_far(std::int32_t to, const Record& record,
                           std::span<const std::byte> bytes) {
  FrameAnnouncement frame{0, context_.rank, to, {}};
  if (context_.set != nullptr) {
    frame.number = context_.set->number;
    frame.to = context_.set->ranks[base::narrow<std::size_t>(to)];
  }
  const std::span<const std::byte> head = bytes_of(record);
  frame.message.reserve(head.size() + bytes.size());
  frame.message.assign(head.begin(), head.end());
  frame.message.insert(frame.message.end(), bytes.begin(), bytes.end());
  frames_sent_.fetch_add(1, std::memory_order_acq_rel);
  return send_frame_(encode(frame));
}

}  // namespace ronde::runtime
