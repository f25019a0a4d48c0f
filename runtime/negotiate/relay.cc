// SPDX-License-Identifier: Apache-2.0
// The relay's two directions: reports are added up and go up once, decisions go down unchanged.
#include "runtime/negotiate/relay.h"

#include <string>
#include <utility>

#include "base/numbers.h"

namespace ronde::runtime {

using base::Code;
using base::Status;

bool is_accident(const Links::Lost& lost, bool somebody_left, bool in_use) {
  return !somebody_left || (!lost.good_bye && in_use);
}

Status lost_neighbour(const base::JobShape& shape, const Links::Lost& lost) {
  const std::int32_t leader = shape.leader_of(lost.host);
  const std::string how = lost.reason.empty() ? "without a good-bye" : "with: " + lost.reason;
  return Status::error(Code::kPeerFailed, lost.peer +
                                              " is gone: the connection to its leader, rank " +
                                              std::to_string(leader) + ", ended " + how)
      .with_rank(leader);
}

Status silent_neighbour(const base::JobShape& shape, const Links::Lost& silent,
                        const std::string& late) {
  const std::int32_t leader = shape.leader_of(silent.host);
  return Status::error(Code::kDeadline,
                       late + "; " + silent.peer + " stands still: its leader, rank " +
                           std::to_string(leader) + ", is connected but " + silent.reason +
                           "; it is stopped, its machine is stuck, or the line to it is cut")
      .with_rank(leader);
}

Relay::Relay(collectives::Board board, const base::JobShape& shape, std::int32_t host, Links& links,
             const base::Clock& clock)
    : shape_(shape),
      host_(host),
      desk_(std::move(board)),
      links_(links),
      clock_(clock),
      far_(shape.ranks()) {}

base::Result<int> Relay::step(bool data_plane_idle) {
  const auto announced =
      desk_.take_announcements([this](std::int32_t position, auto bytes) -> Status {
        if (is_frame(bytes)) {
          RONDE_ASSIGN_OR_RETURN(auto announcement, decode_announcement(bytes));
          auto& frame = std::get<FrameAnnouncement>(announcement);
          return pass_on(Links::From::kChild,
                         {frame.number, frame.from, frame.to, std::move(frame.message)});
        }
        const std::int32_t rank = shape_.ranks_of(host_)[static_cast<std::size_t>(position)];
        return links_.send_up(RelayedAnnouncement{rank, {bytes.begin(), bytes.end()}});
      });
  RONDE_RETURN_IF_ERROR(announced.status());
  const auto ready = desk_.take_ready([this](std::int32_t entry) { return on_ready_here(entry); });
  RONDE_RETURN_IF_ERROR(ready.status());
  const auto read = links_.poll(
      [this](Links::From from, const LinkMessage& message) { return on_message(from, message); });
  RONDE_RETURN_IF_ERROR(read.status());
  while (const auto lost = links_.take_lost()) {
    RONDE_RETURN_IF_ERROR(on_lost(*lost, data_plane_idle));
  }
  RONDE_RETURN_IF_ERROR(desk_.flush());
  RONDE_ASSIGN_OR_RETURN(links_drained_, links_.flush());
  return *announced + *ready + *read;
}

Status Relay::on_message(Links::From from, const LinkMessage& message) {
  if (const auto* record = std::get_if<collectives::FailureRecord>(&message)) {
    desk_.board().fail(*record);
    return {};
  }
  if (const auto* frame = std::get_if<Frame>(&message)) return pass_on(from, *frame);
  if (from == Links::From::kParent) {
    if (const auto* decision = std::get_if<RelayedDecision>(&message)) {
      return on_decision(*decision);
    }
  } else if (const auto* announcement = std::get_if<RelayedAnnouncement>(&message)) {
    return links_.send_up(*announcement);
  } else if (const auto* ready = std::get_if<ReadyReport>(&message)) {
    ReadyReport report = *ready;
    report.arrivals = report.arrivals.seen_at(clock_.now());
    return on_ready(report);
  } else if (const auto* closed = std::get_if<ClosedReport>(&message)) {
    return on_closed(*closed);
  }
  return Status::error(Code::kInternal, "a message between hosts went the wrong way");
}

Status Relay::pass_on(Links::From from, Frame frame) {
  if (frame.to < 0 || frame.to >= shape_.ranks()) {
    return Status::error(Code::kInternal, "a message between two ranks for no rank of this job");
  }
  far_.on_frame(frame);
  const std::int32_t host = shape_.host_of(frame.to);
  if (host == host_) {
    return desk_.post(
        encode(FrameDecision{frame.number, frame.from, frame.to, std::move(frame.message)}));
  }
  return from == Links::From::kParent ? links_.send_towards(host, frame) : links_.send_up(frame);
}

// ---- upwards ----

Status Relay::check_entry(std::int64_t entry) const {
  if (entry >= 0 && entry < desk_.board().geometry().entries) return {};
  return Status::error(Code::kInternal, "a message between hosts names entry " +
                                            std::to_string(entry) + " of a plan of " +
                                            std::to_string(desk_.board().geometry().entries));
}

Status Relay::on_ready_here(std::int32_t entry) {
  const collectives::ArrivalCount arrival = desk_.board().arrival(entry);
  // Where the generation was closed while its last rank was reporting, on_close() has counted the
  // arrivals already.
  if (arrival.count != present()) return {};
  const auto index = base::narrow<std::size_t>(entry);
  if (index >= ready_.size()) ready_.resize(index + 1);
  // Such a late report must not report the next generation twice.
  if (ready_[index].here && ready_[index].generation == arrival.generation) return {};
  RONDE_RETURN_IF_ERROR(on_ready(
      {entry, arrival.generation, steps_of(desk_.board(), shape_.ranks_of(host_), joined_, entry),
       arrivals_of(desk_.board(), shape_.ranks_of(host_), joined_, entry)}));
  ready_[index].here = ready_[index].generation == arrival.generation;
  return {};
}

Status Relay::on_ready(const ReadyReport& report) {
  RONDE_RETURN_IF_ERROR(check_entry(report.entry));
  const auto index = base::narrow<std::size_t>(report.entry);
  if (index >= ready_.size()) ready_.resize(index + 1);
  Ready& ready = ready_[index];
  const auto ahead = static_cast<std::int32_t>(report.generation - ready.generation);
  if (ahead < 0) return {};  // this generation has been closed since
  if (ahead > 0) ready = {report.generation};
  ready.steps.add(report.steps);
  ready.arrivals.add(report.arrivals);
  if (++ready.reports <= links_.children()) return {};
  return links_.send_up(ReadyReport{report.entry, report.generation, ready.steps,
                                    ready.arrivals.seen_at(clock_.now())});
}

Status Relay::on_closed(const ClosedReport& report) {
  const auto closing = closing_.find(report.entry);
  if (closing == closing_.end()) {
    return Status::error(Code::kInternal, "an answer about entry " + std::to_string(report.entry) +
                                              " that was not asked for");
  }
  // The entry was closed again before all had answered, so this answer is out of date.
  if (closing->second.report.generation != report.generation) return {};
  ClosedReport& sum = closing->second.report;
  sum.arrived += report.arrived;
  sum.ranks.insert(sum.ranks.end(), report.ranks.begin(), report.ranks.end());
  sum.steps.insert(sum.steps.end(), report.steps.begin(), report.steps.end());
  if (--closing->second.awaited > 0) return {};
  const ClosedReport whole = std::move(sum);
  closing_.erase(closing);
  return links_.send_up(whole);
}

// ---- downwards ----

Status Relay::on_decision(const RelayedDecision& relayed) {
  RONDE_ASSIGN_OR_RETURN(const auto decision, decode_decision(relayed.decision));
  RONDE_RETURN_IF_ERROR(links_.send_down(relayed));
  if (const auto* close = std::get_if<CloseDecision>(&decision)) return on_close(*close);
  if (const auto* bind = std::get_if<BindDecision>(&decision)) {
    RONDE_RETURN_IF_ERROR(check_entry(bind->entry));
    // The word gets the new generation before any rank reads the decision and can arrive at it.
    [[maybe_unused]] const std::uint32_t none =
        desk_.board().close_generation(bind->entry, bind->generation);
  } else if (const auto* batch = std::get_if<BatchDecision>(&decision)) {
    for (const BatchItem& item : batch->items) {
      if (item.entry >= 0) RONDE_RETURN_IF_ERROR(check_entry(item.entry));
    }
    RONDE_RETURN_IF_ERROR(on_batch(*batch));
  } else if (const auto* departed = std::get_if<DepartedDecision>(&decision)) {
    RONDE_RETURN_IF_ERROR(on_departed(*departed));
  } else if (const auto* joined = std::get_if<JoinedDecision>(&decision)) {
    RONDE_RETURN_IF_ERROR(on_joined(*joined));
  }
  return desk_.post(relayed.decision);
}

// The words of all entries have been closed before, so that no rank arrives at an older count.
Status Relay::on_joined(const JoinedDecision& decision) {
  if (decision.rank < 0 || decision.rank >= shape_.ranks()) {
    return Status::error(Code::kInternal, "no rank " + std::to_string(decision.rank) + " can join");
  }
  joined_.add(decision.rank);
  if (decision.all) joined_.clear();
  return {};
}

// Called before any rank knows of the batch, so that the next step's arrivals start from 0.
Status Relay::on_batch(const BatchDecision& batch) {
  const collectives::Board& board = desk_.board();
  const std::uint32_t all = present();
  for (const BatchItem& item : batch.items) {
    if (item.entry < 0) continue;
    // An entry that became ready through full requests has no arrivals to reset.
    const collectives::ArrivalCount arrival = board.arrival(item.entry);
    if (all > 0 && arrival.count == all) board.reset(item.entry, arrival.generation, all);
    const auto index = static_cast<std::size_t>(item.entry);
    if (index < ready_.size()) ready_[index] = {ready_[index].generation};
    if (index >= last_batches_.size()) last_batches_.resize(index + 1);
    last_batches_[index] = batch.sequence;
    // A host whose ranks have all joined is ready for the next step at once.
    if (all == 0) RONDE_RETURN_IF_ERROR(on_ready({item.entry, arrival.generation, {}, {}}));
  }
  return {};
}

Status Relay::on_close(const CloseDecision& close) {
  RONDE_RETURN_IF_ERROR(check_entry(close.entry));
  const collectives::Board& board = desk_.board();
  Closing& closing = closing_[close.entry];
  closing.awaited = links_.children();
  closing.report = {
      close.entry, close.generation, board.close_generation(close.entry, close.generation), {}, {}};
  const auto index = static_cast<std::size_t>(close.entry);
  if (closing.report.arrived > 0) {
    const std::uint64_t last_batch = index < last_batches_.size() ? last_batches_[index] : 0;
    for (std::int32_t position = 0; position < board.ranks(); ++position) {
      if (!board.has_arrived(position, close.entry, last_batch)) continue;
      closing.report.ranks.push_back(shape_.ranks_of(host_)[static_cast<std::size_t>(position)]);
      closing.report.steps.push_back(
          static_cast<std::int64_t>(board.step_of(position, close.entry)));
    }
  }
  if (index < ready_.size()) ready_[index] = {close.generation};
  if (closing.awaited > 0) return {};
  const ClosedReport report = std::move(closing.report);
  closing_.erase(close.entry);
  return links_.send_up(report);
}

Status Relay::on_departed(const DepartedDecision& departed) {
  somebody_left_ = true;
  if (departed.rank < 0 || departed.rank >= shape_.ranks()) {
    return Status::error(Code::kInternal,
                         "no rank " + std::to_string(departed.rank) + " can leave");
  }
  far_.on_departed(departed);
  return {};
}

// After a parent that has left no decision can arrive, which is the same for the ranks below as if
// the coordinator had left: so that is what they receive.
Status Relay::on_lost(const Links::Lost& lost, bool data_plane_idle) {
  if (is_accident(lost, somebody_left_, !data_plane_idle || far_.passes())) {
    return lost_neighbour(shape_, lost);
  }
  if (lost.side == Links::From::kChild) return {};
  far_.on_cut();
  const std::vector<std::byte> bytes = encode(Decision(DepartedDecision{kCoordinator}));
  RONDE_RETURN_IF_ERROR(links_.send_down(RelayedDecision{bytes}));
  return desk_.post(bytes);
}

}  // namespace ronde::runtime
