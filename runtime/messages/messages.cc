// SPDX-License-Identifier: Apache-2.0
// Messages: what callers begin, and how all of them end.
#include "runtime/messages/messages.h"

#include <limits>
#include <utility>

#include "collectives/board/arena.h"
#include "runtime/drive/idle.h"
#include "runtime/messages/peer_protocol.h"
#include "runtime/timeline/timeline.h"

namespace ronde::runtime {

using base::Code;
using base::MutexLock;
using base::Result;
using base::Status;

namespace {

// The word of this rank alone, for the protocol.
struct OwnWords {
  collectives::MessageWords& words;
  void set_awaits(bool awaits) const {
    words.awaits.store(awaits ? 1 : 0, std::memory_order_seq_cst);
  }
};

std::string place_of(const MessageRequest& request) {
  if (request.file == nullptr) return "";
  return std::string(request.file) + ":" + std::to_string(request.line);
}

}  // namespace

Messages::Messages(const RankContext& context, bool oversubscribed, Hooks hooks)
    : context_(context),
      me_(context.board.rank()),
      oversubscribed_(oversubscribed),
      mine_(context.board.message_words(me_)),
      hooks_(std::move(hooks)),
      copy_(context.board, context.config.messages),
      peers_(base::narrow<std::size_t>(context.shape.ranks())) {}

// ---- beginning ----

Status Messages::check(const MessageRequest& request, bool sends) const {
  const bool any = !sends && request.rank == MessageRequest::kAnyRank;
  const std::string text = sends ? message_text(request.tag, context_.rank, request.rank)
                                 : message_text(request.tag, request.rank, context_.rank);
  const auto refused = [&text](Code code, const std::string& why) {
    return Status::error(code, text + ": " + why);
  };
  if (!any && (request.rank < 0 || request.rank >= context_.shape.ranks())) {
    return refused(Code::kInvalidArgument,
                   std::string(context_.set == nullptr ? "the job" : "the process set") +
                       " has the ranks 0 to " + std::to_string(context_.shape.ranks() - 1));
  }
  if (request.count < 0 ||
      request.count > std::numeric_limits<std::int64_t>::max() / base::size_of(request.dtype)) {
    return refused(Code::kInvalidArgument,
                   std::to_string(request.count) + " is no number of elements");
  }
  if (request.memory == nullptr && request.count > 0) {
    return refused(Code::kInvalidArgument, "its memory is NULL");
  }
  if (request.device >= 0) {
    return refused(Code::kUnsupported,
                   "messages of a device's memory are not there yet: copy it to the host");
  }
  return {};
}

Status Messages::usable() const {
  RONDE_RETURN_IF_ERROR(failed_);
  if (shut_) return Status::error(Code::kClosed, "this engine has been closed");
  return {};
}

Messages::WorkPtr Messages::work_of(const MessageRequest& request, bool sends) const {
  auto work = std::make_shared<Work>();
  work->name = "a message";
  work->of_message = true;
  work->deadline = request.deadline;
  work->may_be_far = may_be_far(request.rank);
  if (context_.timeline == nullptr || !context_.timeline->on()) return work;
  work->message_target = sends ? request.rank : -1;
  work->message_tag = request.tag;
  work->message_bytes = base::narrow<std::int64_t>(request.bytes());
  work->began = context_.clock.now();
  return work;
}

Messages::OperationPtr Messages::enlist(const MessageRequest& request, bool sends,
                                        std::int32_t peer, WorkPtr work) {
  auto operation = std::make_shared<Operation>();
  operation->id = ++last_id_;
  operation->sends = sends;
  operation->request = request;
  operation->place = place_of(request);
  operation->peer = peer;
  operation->work = std::move(work);
  operation->since = context_.clock.now();
  operation->warn_at = context_.clock.after(context_.config.stall_warning);
  const base::Instant look = std::min(operation->warn_at, fails_at(*operation));
  if (next_look_.load(std::memory_order_relaxed) > look) {
    next_look_.store(look, std::memory_order_relaxed);
  }
  // Whoever waits at once looks by itself at first (attend), for which nobody need ring.
  if (request.will_wait && !oversubscribed_ && in_flight_.empty() && !shut_) {
    want_nothing();
  } else {
    want();
  }
  in_flight_.emplace(operation->id, operation);
  return operation;
}

// From now on this rank is rung; it looks after this call.
void Messages::want() {
  if (std::exchange(awaits_, true)) return;
  OwnWords words{mine_};
  PeerProtocol(words).want();
}

void Messages::want_nothing() {
  if (!std::exchange(awaits_, false)) return;
  OwnWords{mine_}.set_awaits(false);
}

bool Messages::attend(Work& work, bool spins) {
  Status looked;
  Idle idle(context_.config.spin, {}, false);
  spins = spins && !oversubscribed_ && !work.may_be_far;
  while (looked.ok() && !work.completion.done() && spins && !moving() && idle.again(false)) {
    looked = look();
  }
  if (work.completion.done()) return true;
  {
    const MutexLock lock(mutex_);
    if (!in_flight_.empty()) want();
  }
  if (looked.ok()) looked = look();
  if (!looked.ok()) hooks_.fail(looked, looked.rank().value_or(-1));
  return work.completion.done();
}

Status Messages::look() {
  Finished finished;
  Status status;
  {
    const MutexLock lock(mutex_);
    status = failed_.ok() ? progress(finished).status() : Status();
  }
  end(finished);
  return status;
}

Result<Outgoing*> Messages::channel_to(std::int32_t peer) {
  auto& out = peers_[base::narrow<std::size_t>(peer)].out;
  if (out != nullptr) return out.get();
  if (is_far(peer)) {
    out = std::make_unique<FarChannel>(peer, hooks_.send_far);
  } else {
    const auto memory = hooks_.allocate(base::Bytes::of_size(kChannelBytes));
    if (!memory.ok()) {
      return Status::error(
          memory.status().code(),
          "messages to rank " + std::to_string(peer) + " need a channel in this rank's arena",
          memory.status());
    }
    out = std::make_unique<OutgoingChannel>(
        OutgoingChannel::make(context_.board, position_of(peer), *memory));
  }
  receivers_.push_back(peer);
  in_use_.store(true, std::memory_order_release);
  if (shut_) RONDE_RETURN_IF_ERROR(out->post({}, {}));
  return out.get();
}

// An error where the receiver has closed its engine.
Status Messages::still_there(const MessageRequest& request) const {
  if (!has_left(request.rank) || context_.board.failed()) return {};
  return Status::error(Code::kClosed, message_text(request.tag, context_.rank, request.rank) +
                                          " (" + elements_text(request.dtype, request.count) +
                                          "): rank " + std::to_string(request.rank) +
                                          " has closed its engine")
      .with_rank(request.rank);
}

Result<Messages::WorkPtr> Messages::send(const MessageRequest& request) {
  RONDE_RETURN_IF_ERROR(check(request, true));
  const std::int32_t to = request.rank;
  WorkPtr work = work_of(request, true);
  Status looked;
  Finished finished;
  {
    const MutexLock lock(mutex_);
    RONDE_RETURN_IF_ERROR(usable());
    RONDE_RETURN_IF_ERROR(still_there(request));
    RONDE_ASSIGN_OR_RETURN(Outgoing* const out, channel_to(to));
    const std::span<const std::byte> bytes(request.memory, request.bytes());
    Record record{.kind = RecordKind::kBytes,
                  .dtype = request.dtype,
                  .tag = request.tag,
                  .count = request.count};
    if (bytes.size() > kSmallBytes || !out->takes(bytes.size())) {
      const std::span<std::byte> arena = context_.board.arena(me_);
      record.kind = RecordKind::kOffer;
      record.in_arena = collectives::lies_in(arena, bytes.data(), bytes.size()) ? 1 : 0;
      record.address = record.in_arena != 0
                           ? static_cast<std::uint64_t>(bytes.data() - arena.data())
                           : reinterpret_cast<std::uint64_t>(bytes.data());
      const OperationPtr operation = enlist(request, true, to, work);
      record.id = operation->id;
      RONDE_RETURN_IF_ERROR(out->post(record, {}));
      // It rings whoever awaits something before it closes, and this rank did not before. What it
      // has written until then is read first: it may have taken this message.
      if (has_left(to)) {
        peers_[base::narrow<std::size_t>(to)].gone = true;
        looked = progress(finished).status();
        if (in_flight_.contains(operation->id)) end_if_hopeless(operation, finished);
      }
    } else {
      RONDE_RETURN_IF_ERROR(out->post_message(record, bytes));
      // Where it had not left yet it looks once more, and refuses what nobody receives.
      const Status there = still_there(request);
      if (!there.ok() && out->untaken()) return there;
      finished.works.emplace_back(work, Status());
    }
  }
  end(finished);
  if (!looked.ok()) hooks_.fail(looked, looked.rank().value_or(-1));
  return work;
}

Result<Messages::WorkPtr> Messages::receive(const MessageRequest& request) {
  RONDE_RETURN_IF_ERROR(check(request, false));
  const std::int32_t from = request.rank;
  WorkPtr work = work_of(request, false);
  Finished finished;
  Status looked;
  {
    const MutexLock lock(mutex_);
    RONDE_RETURN_IF_ERROR(usable());
    in_use_.store(true, std::memory_order_release);
    auto arrived = matching_.take_arrived(request.tag, from);
    const OperationPtr operation = enlist(request, false, from, work);
    if (arrived) {
      looked = give(operation, arrived->first, {arrived->second.record, arrived->second.bytes},
                    finished);
    } else {
      matching_.post(request.tag, from, operation);
      looked = progress(finished).status();
    }
    if (in_flight_.contains(operation->id)) end_if_hopeless(operation, finished);
  }
  end(finished);
  if (!looked.ok()) hooks_.fail(looked, looked.rank().value_or(-1));
  return work;
}

// ---- ending ----

void Messages::finish(const OperationPtr& operation, Status status, Finished& finished) {
  in_flight_.erase(operation->id);
  finished.works.emplace_back(operation->work, std::move(status));
}

void Messages::end(const Finished& finished) {
  for (const auto& [work, status] : finished.works) hooks_.end(*work, status, false);
  for (const Status& status : finished.warnings) context_.log.warning(status.message());
  for (const Status& status : finished.lost) {
    context_.log.error(status.message());
    hooks_.remember(status);
  }
}

// Nobody reads memory of this rank's callers after this, nor does this rank.
void Messages::end_all(const std::function<Status(const Operation&)>& why, bool of_job) {
  std::map<std::uint64_t, OperationPtr> all;
  {
    const MutexLock lock(mutex_);
    for (Peer& peer : peers_) {
      if (peer.out) peer.out->revoke();
      peer.streaming.clear();
    }
    all.swap(in_flight_);
    for (const auto& [id, each] : all) {
      if (!each->sends) matching_.remove(each->request.tag, each);
    }
    copies_.clear();
    chunked_.clear();
    granted_ = 0;
    ungranted_.clear();
    moving_.store(false, std::memory_order_release);
    streaming_.store(false, std::memory_order_release);
    next_look_.store(base::kNever, std::memory_order_relaxed);
  }
  for (const auto& [id, each] : all) hooks_.end(*each->work, why(*each), of_job);
}

void Messages::fail(const Status& why) {
  {
    const MutexLock lock(mutex_);
    if (failed_.ok()) failed_ = why;
  }
  end_all([&why](const Operation&) { return why; }, true);
}

void Messages::shut() {
  Status posted;
  std::size_t lost = 0;
  std::string first_lost;
  {
    const MutexLock lock(mutex_);
    shut_ = true;
    mine_.closing.store(1, std::memory_order_seq_cst);
    if (in_use()) want();
    for (const std::int32_t to : receivers_) {
      if (posted.ok()) posted = peers_[base::narrow<std::size_t>(to)].out->post({}, {});
    }
    for (const auto& [from, arrived] : matching_.take_all_arrived()) {
      const Status why = not_received(from, arrived.record);
      if (arrived.record.kind != RecordKind::kOffer) {
        if (lost++ == 0) first_lost = why.message();
      } else if (posted.ok()) {
        posted = refuse(from, arrived.record, why);
      }
    }
  }
  if (lost > 0) {
    context_.log.warning(
        first_lost +
        (lost == 1 ? "" : ", as " + std::to_string(lost - 1) + " more that were sent to it"));
  }
  if (!posted.ok()) hooks_.fail(posted, -1);
  tell_all();
}

void Messages::leave() {
  look().ignore();
  tell_all();
}

void Messages::tell_all() const {
  for (std::int32_t other = 0; other < context_.board.ranks(); ++other) {
    if (other == me_) continue;
    // Whoever awaits nothing reads the words of this rank before it does.
    collectives::MessageWords& theirs = context_.board.message_words(other);
    if (theirs.awaits.load(std::memory_order_seq_cst) == 0) continue;
    theirs.news.fetch_add(1, std::memory_order_seq_cst);
    context_.board.doorbell(other).ring();
  }
}

bool Messages::idle() const {
  const MutexLock lock(mutex_);
  if (!in_flight_.empty()) return false;
  for (const std::int32_t to : receivers_) {
    if (peers_[base::narrow<std::size_t>(to)].out->full()) return false;
  }
  return true;
}

}  // namespace ronde::runtime
