// SPDX-License-Identifier: Apache-2.0
// What comes in the channels, and moving large messages.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/messages/messages.h"

namespace ronde::runtime {

using base::Code;
using base::MutexLock;
using base::Result;
using base::Status;

namespace {

// Between two pieces of a copy the agent looks at everything else.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::size_t kChunkBytes = std::size_t{32} << 10;

Status corrupt_record(const char* what) {
  return Status::error(Code::kInternal,
                       std::string("a record of a message on the board is corrupt: ") + what);
}

}  // namespace

// ---- looking ----

Result<int> Messages::step() {
  if (!in_use()) return 0;
  if (gives_up_.exchange(false, std::memory_order_acq_rel)) {
    end_all(
        [this](const Operation& each) {
          return Status::error(Code::kClosed,
                               text_of(each) +
                                   " was not finished when this rank closed its engine "
                                   "(RONDE_SHUTDOWN_TIMEOUT_SECONDS passed)");
        },
        false);
  }
  Finished finished;
  OperationPtr copies;
  Result<int> work = 0;
  {
    const MutexLock lock(mutex_);
    work = progress(finished);
    // What has come is for nobody who waits: from now on it is left in the channel.
    if (work.ok() && *work > 0 && in_flight_.empty() && !shut_) want_nothing();
    if (!copies_.empty()) copies = copies_.front();
  }
  if (work.ok() && copies != nullptr) {
    const auto copied = copy_piece(copies, finished);
    work = copied.ok() ? Result<int>(*work + *copied) : copied;
  }
  end(finished);
  check_late();
  return work;
}

Result<int> Messages::progress(Finished& finished) {
  take_departures();
  const bool near_news = mine_.news.load(std::memory_order_seq_cst) != seen_news_;
  if (near_news) look_for_news();
  const bool news = std::exchange(news_of_far_, false) || near_news;
  int work = 0;
  for (const std::int32_t from : senders_) {
    IncomingChannel& in = *peers_[base::narrow<std::size_t>(from)].in;
    while (true) {
      RONDE_ASSIGN_OR_RETURN(const auto received, in.poll());
      if (!received) break;
      RONDE_RETURN_IF_ERROR(on_record(from, *received, finished));
      ++work;
    }
  }
  bool streams = !chunked_.empty();
  for (const std::int32_t to : receivers_) {
    Peer& peer = peers_[base::narrow<std::size_t>(to)];
    if (peer.out->full()) RONDE_RETURN_IF_ERROR(peer.out->flush());
    if (!peer.streaming.empty()) RONDE_RETURN_IF_ERROR(pump(peer, finished));
    streams = streams || !peer.streaming.empty();
  }
  streaming_.store(streams, std::memory_order_release);
  if (any_ended_ && (news || work > 0)) end_hopeless(finished);
  return work;
}

// A rank that has closed its engine has written all that it ever writes, which is read after this.
void Messages::look_for_news() {
  seen_news_ = mine_.news.load(std::memory_order_seq_cst);
  for (std::int32_t position = 0; position < context_.board.ranks(); ++position) {
    Peer& peer = peers_[base::narrow<std::size_t>(context_.rank_at(position))];
    if (context_.board.message_words(position).closing.load(std::memory_order_seq_cst) != 0) {
      any_ended_ = true;
      if (context_.board.state(position) == collectives::PresenceState::kClosed) peer.gone = true;
    }
    if (peer.in) continue;
    peer.in = IncomingChannel::find(context_.board, position);
    if (peer.in) senders_.push_back(context_.rank_at(position));
  }
}

// ---- records ----

Status Messages::on_record(std::int32_t from, const Received& received, Finished& finished) {
  switch (received.record.kind) {
    case RecordKind::kBytes:
    case RecordKind::kOffer:
      return on_message(from, received, finished);
    case RecordKind::kChunk:
      return on_chunk(from, received, finished);
    case RecordKind::kClosing:
      peers_[base::narrow<std::size_t>(from)].ended = true;
      any_ended_ = true;
      return {};
    case RecordKind::kTaken:
      return on_taken(from, received.record);
    case RecordKind::kAsk:
      return on_ask(from);
    case RecordKind::kState:
      on_state(from, received);
      return {};
    default:
      return on_answer(from, received, finished);
  }
}

Status Messages::on_message(std::int32_t from, const Received& received, Finished& finished) {
  const Record& record = received.record;
  OperationPtr operation = matching_.take_posted(record.tag, from);
  if (operation != nullptr) return give(operation, from, received, finished);
  if (shut_) {
    // The sender of a small one may have left already.
    const Status why = not_received(from, record);
    const bool small = record.kind == RecordKind::kBytes;
    if (small && !std::exchange(warned_of_lost_, true)) finished.warnings.push_back(why);
    return refuse(from, record, why);
  }
  matching_.store(record.tag, from, {record, {received.bytes.begin(), received.bytes.end()}});
  return {};
}

// The receive gets this message.
Status Messages::give(const OperationPtr& operation, std::int32_t from, const Received& received,
                      Finished& finished) {
  const Record& record = received.record;
  operation->peer = from;
  operation->work->message_source = from;
  const MessageRequest& wanted = operation->request;
  if (record.kind == RecordKind::kBytes) RONDE_RETURN_IF_ERROR(take(from, received.bytes.size()));
  if (record.dtype != wanted.dtype || record.count != wanted.count) {
    const Status why = mismatch(*operation, from, record);
    finish(operation, why, finished);
    return refuse(from, record, why);
  }
  if (record.kind == RecordKind::kOffer) {
    operation->offer = record;
    if (!is_far(from)) {
      operation->way = copy_.way_to(position_of(from), record.in_arena != 0, wanted.bytes());
      operation->moves_since = context_.clock.now();
    }
    if (operation->way == PeerCopy::Way::kNone) return ask_for_chunks(operation);
    operation->state = State::kCopies;
    copies_.push_back(operation);
    moving_.store(true, std::memory_order_release);
    return {};
  }
  if (received.bytes.size() != wanted.bytes()) return corrupt_record("its bytes do not fit");
  if (!received.bytes.empty()) {
    std::memcpy(wanted.memory, received.bytes.data(), received.bytes.size());
  }
  finish(operation, {}, finished);
  return {};
}

Status Messages::answer(std::int32_t to, RecordKind kind, std::uint64_t id) {
  RONDE_ASSIGN_OR_RETURN(Outgoing* const out, channel_to(to));
  return out->post({.kind = kind, .id = id}, {});
}

Status Messages::refuse(std::int32_t from, const Record& record, const Status& why) {
  RONDE_ASSIGN_OR_RETURN(Outgoing* const out, channel_to(from));
  const std::string text = why.message();
  return out->post({.kind = RecordKind::kRefused,
                    .code = static_cast<std::int32_t>(why.code()),
                    .tag = record.tag,
                    .id = record.id},
                   std::as_bytes(std::span(text)));
}

// To what this rank has sent.
Status Messages::on_answer(std::int32_t from, const Received& received, Finished& finished) {
  const Record& record = received.record;
  const auto found = in_flight_.find(record.id);
  const bool known =
      found != in_flight_.end() && found->second->sends && found->second->peer == from;
  if (record.kind == RecordKind::kRefused) {
    const std::string text(reinterpret_cast<const char*>(received.bytes.data()),
                           received.bytes.size());
    const Status why = Status::remote(static_cast<Code>(record.code), text, "", from);
    if (known) {
      finish(OperationPtr(found->second), why, finished);
    } else if (record.id == 0) {
      finished.lost.push_back(why);
    }
    return {};
  }
  if (!known) return {};  // this rank has given it up
  const OperationPtr operation = found->second;
  if (record.kind == RecordKind::kDone) {
    finish(operation, {}, finished);
  } else {
    operation->state = State::kStreams;
    RONDE_RETURN_IF_ERROR(channel_to(from).status());
    peers_[base::narrow<std::size_t>(from)].streaming.push_back(operation);
  }
  return {};
}

// ---- large messages ----

// A piece of the first large message that comes here.
Result<int> Messages::copy_piece(const OperationPtr& operation, Finished& finished) {
  const MessageRequest& wanted = operation->request;
  const Record& offer = operation->offer;
  const std::size_t piece = std::min(kPieceBytes, wanted.bytes() - operation->moved);
  ChannelWords* words = nullptr;
  {
    const MutexLock lock(mutex_);
    words = &peers_[base::narrow<std::size_t>(operation->peer)].in->words();
  }
  RONDE_ASSIGN_OR_RETURN(
      const Copied copied,
      copy_.copy({position_of(operation->peer), operation->way, offer.address + operation->moved},
                 *words, wanted.memory + operation->moved, piece));
  const MutexLock lock(mutex_);
  if (copied == Copied::kAll) operation->moved += piece;
  if (copied == Copied::kAll && operation->moved < wanted.bytes()) return 1;
  copies_.pop_front();
  moving_.store(!copies_.empty(), std::memory_order_release);
  if (copied == Copied::kNot) {
    copy_.forbid(position_of(operation->peer));
    RONDE_RETURN_IF_ERROR(ask_for_chunks(operation));
    return 1;
  }
  if (copied == Copied::kTakenBack) {
    const Status why = hopeless(*operation);
    if (!why.ok()) finish(operation, why, finished);  // else the failure of the job ends it
    return 1;
  }
  RONDE_RETURN_IF_ERROR(answer(operation->peer, RecordKind::kDone, offer.id));
  arrived(operation, finished);
  return 1;
}

// The last byte of a large message is here.
void Messages::arrived(const OperationPtr& operation, Finished& finished) {
  if (!is_far(operation->peer)) {
    copy_.took(position_of(operation->peer), operation->way, operation->request.bytes(),
               context_.clock.now() - operation->moves_since);
  }
  finish(operation, {}, finished);
}

Status Messages::ask_for_chunks(const OperationPtr& operation) {
  operation->moved = 0;
  operation->state = State::kStreams;
  if (is_far(operation->peer)) {
    ungranted_.push_back(operation);
    return grant();
  }
  chunked_.emplace(std::pair(operation->peer, operation->offer.id), operation);
  return answer(operation->peer, RecordKind::kSend, operation->offer.id);
}

// Puts as much of this rank's messages into the channel as it takes.
Status Messages::pump(Peer& peer, Finished& finished) {
  while (!peer.streaming.empty()) {
    const OperationPtr operation = peer.streaming.front();
    const MessageRequest& sent = operation->request;
    const std::size_t bytes =
        std::min({kChunkBytes, sent.bytes() - operation->moved, peer.out->straight_bytes()});
    RONDE_ASSIGN_OR_RETURN(const bool posted,
                           peer.out->try_post({.kind = RecordKind::kChunk, .id = operation->id},
                                              {sent.memory + operation->moved, bytes}));
    if (!posted) break;
    operation->moved += bytes;
    if (operation->moved < sent.bytes()) continue;
    peer.streaming.pop_front();
    finish(operation, {}, finished);
  }
  return {};
}

Status Messages::on_chunk(std::int32_t from, const Received& received, Finished& finished) {
  if (is_far(from)) RONDE_RETURN_IF_ERROR(take_chunk(from));
  const auto found = chunked_.find({from, received.record.id});
  if (found == chunked_.end()) return {};  // this rank has given it up
  const OperationPtr operation = found->second;
  const MessageRequest& wanted = operation->request;
  if (received.bytes.size() > wanted.bytes() - operation->moved) {
    return corrupt_record("a chunk is too long");
  }
  std::memcpy(wanted.memory + operation->moved, received.bytes.data(), received.bytes.size());
  operation->moved += received.bytes.size();
  if (operation->moved < wanted.bytes()) return {};
  chunked_.erase(found);
  arrived(operation, finished);
  if (!is_far(from)) return {};
  --granted_;
  return grant();
}

}  // namespace ronde::runtime
