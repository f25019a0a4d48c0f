// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks: sends and receives by rank and tag, beside the coordinator and the
// batches. On a host small messages travel in the channel; a larger one is offered there, and the
// receiver copies it once, or asks for it in chunks. Between hosts see far_channel.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "runtime/member/rank_context.h"
#include "runtime/messages/channel.h"
#include "runtime/messages/far_channel.h"
#include "runtime/messages/matching.h"
#include "runtime/messages/message.h"
#include "runtime/messages/peer_copy.h"
#include "runtime/messages/record.h"
#include "runtime/tensors/work.h"

namespace ronde::runtime {

// Owns this rank's channels and its messages in flight. It touches the memory of a request until
// its work is done. On a host nobody but the two ranks is woken, and none that awaits nothing.
//
// Thread safety: send(), receive(), attend(), shut(), want_given_up(), in_use(), idle(),
// in_flight(), moving(), busy(), oldest(), oldest_text() and text_of_work() from any thread; the
// rest is for the agent.
class Messages {
 public:
  // Up to so many bytes a message travels in the channel, and its send is done at once.
  static constexpr std::size_t kSmallBytes = std::size_t{32} << 10;
  using WorkPtr = std::shared_ptr<Work>;
  struct Hooks {
    // Memory in this rank's arena, for good.
    std::function<base::Result<std::span<std::byte>>(base::Bytes)> allocate;
    // Sends a record to a rank of another host.
    FarChannel::Send send_far;
    // Ends a work. of_job: the job has failed, and every call returns that.
    std::function<void(Work& work, const base::Status& status, bool of_job)> end;
    // An error for which there is no work any more.
    std::function<void(const base::Status& status)> remember;
    // Fails the job; culprit: the rank that caused it, or -1.
    std::function<void(const base::Status& why, std::int32_t culprit)> fail;
  };
  // oversubscribed: the ranks of this host have fewer cores than they are.
  Messages(const RankContext& context, bool oversubscribed, Hooks hooks);

  // Puts a message in flight and returns at once; with an error there is no work.
  base::Result<WorkPtr> send(const MessageRequest& request);
  base::Result<WorkPtr> receive(const MessageRequest& request);

  // Whether that is a rank of another host, or any rank where there is one: then the agent alone
  // brings what comes from it.
  [[nodiscard]] bool may_be_far(std::int32_t rank) const {
    return context_.shape.hosts() > 1 &&
           (rank < 0 || (rank < context_.shape.ranks() && is_far(rank)));
  }

  // For a thread that waits for a message: looks for it, which needs no agent, and, if it spins, as
  // long as the settings say. From then on this rank is rung for it. Returns whether it is done.
  bool attend(Work& work, bool spins);

  // A record of a rank of another host has come; an error fails the job.
  base::Status on_frame(std::int32_t from, std::span<const std::byte> frame);
  // A rank of another host sends no more messages; left: and takes none.
  void on_departed(std::int32_t rank, bool left);

  // Returns how many steps it did; an error fails the job.
  base::Result<int> step();
  // Whether a large message moves here, for which nothing rings.
  [[nodiscard]] bool moving() const { return moving_.load(std::memory_order_acquire); }
  // Whether one does, or comes in chunks: about to go on.
  [[nodiscard]] bool busy() const { return moving() || streaming_.load(std::memory_order_acquire); }
  [[nodiscard]] base::Instant next_deadline() const {
    return next_look_.load(std::memory_order_relaxed);
  }
  // False until the first message to or from this rank.
  [[nodiscard]] bool in_use() const { return in_use_ || mine_.news.load() != 0; }

  // The job has failed: ends all that is in flight.
  void fail(const base::Status& why);
  // Refuses new messages, and lets the other ranks know.
  void shut();
  // Nothing is in flight here, nor is a message on its way into a channel.
  [[nodiscard]] bool idle() const;
  [[nodiscard]] bool in_flight() const {
    const base::MutexLock lock(mutex_);
    return !in_flight_.empty();
  }
  // The next step fails by name what is in flight.
  void want_given_up() { gives_up_.store(true, std::memory_order_release); }
  // This rank's state on the board is kClosed: what has been sent until then is refused, and
  // whoever waits for it is rung. What comes later its sender refuses.
  void leave();
  // Since when the message that has been in flight here for longest is; kNever: there is none.
  [[nodiscard]] base::Instant oldest() const;
  // Describe all in flight, the oldest first.
  [[nodiscard]] std::vector<std::string> texts() const;
  // Describe the message that has been in flight here for longest, and the one of this work. The
  // text is empty where there is none.
  [[nodiscard]] std::string oldest_text() const;
  [[nodiscard]] std::string text_of_work(const Work& work) const;

 private:
  enum class State : std::uint8_t { kWaits, kCopies, kStreams };
  // A send or receive in flight.
  struct Operation {
    std::uint64_t id = 0;
    bool sends = false;
    MessageRequest request;
    std::string place;      // of the call
    std::int32_t peer = 0;  // the other rank; MessageRequest::kAnyRank until it is known
    WorkPtr work;
    base::Instant since{};
    base::Instant warn_at{};
    State state = State::kWaits;
    Record offer;  // of a receive: what it gets
    PeerCopy::Way way = PeerCopy::Way::kNone;
    base::Instant moves_since{};
    std::size_t moved = 0;  // bytes
  };
  using OperationPtr = std::shared_ptr<Operation>;
  struct Arrived {
    Record record;
    std::vector<std::byte> bytes;
  };
  struct Peer {
    std::unique_ptr<Outgoing> out;
    std::optional<IncomingChannel> in;  // of this host
    FarTaken taken;                     // of another one
    std::deque<OperationPtr> streaming;
    bool ended = false;  // it sends no more messages
    bool gone = false;   // it has closed its engine
  };
  // What is known of the ranks of another host.
  struct HostState {
    base::Instant asked{};
    bool answered = false;
    std::int32_t stopped = -1;
    std::string text;
  };
  struct Departure {
    std::int32_t rank = 0;
    bool left = false;
    base::Instant counts_at{};
  };
  // Works to be ended once the lock is free.
  struct Finished {
    std::vector<std::pair<WorkPtr, base::Status>> works;
    std::vector<base::Status> lost;
    std::vector<base::Status> warnings;
  };

  // ---- messages.cc ----
  [[nodiscard]] base::Status check(const MessageRequest& request, bool sends) const;
  [[nodiscard]] base::Status usable() const RONDE_REQUIRES(mutex_);
  [[nodiscard]] WorkPtr work_of(const MessageRequest& request, bool sends) const;
  OperationPtr enlist(const MessageRequest& request, bool sends, std::int32_t peer, WorkPtr work)
      RONDE_REQUIRES(mutex_);
  [[nodiscard]] base::Status still_there(const MessageRequest& request) const
      RONDE_REQUIRES(mutex_);
  base::Result<Outgoing*> channel_to(std::int32_t peer) RONDE_REQUIRES(mutex_);
  void want() RONDE_REQUIRES(mutex_);
  void want_nothing() RONDE_REQUIRES(mutex_);
  base::Status look();
  void end(const Finished& finished);
  void end_all(const std::function<base::Status(const Operation&)>& why, bool of_job);
  void finish(const OperationPtr& operation, base::Status status, Finished& finished)
      RONDE_REQUIRES(mutex_);

  // ---- messages_progress.cc ----
  base::Result<int> progress(Finished& finished) RONDE_REQUIRES(mutex_);
  void look_for_news() RONDE_REQUIRES(mutex_);
  base::Status on_record(std::int32_t from, const Received& received, Finished& finished)
      RONDE_REQUIRES(mutex_);
  base::Status on_message(std::int32_t from, const Received& received, Finished& finished)
      RONDE_REQUIRES(mutex_);
  base::Status on_answer(std::int32_t from, const Received& received, Finished& finished)
      RONDE_REQUIRES(mutex_);
  base::Status on_chunk(std::int32_t from, const Received& received, Finished& finished)
      RONDE_REQUIRES(mutex_);
  base::Status give(const OperationPtr& operation, std::int32_t from, const Received& received,
                    Finished& finished) RONDE_REQUIRES(mutex_);
  base::Status refuse(std::int32_t from, const Record& record, const base::Status& why)
      RONDE_REQUIRES(mutex_);
  base::Status answer(std::int32_t to, RecordKind kind, std::uint64_t id) RONDE_REQUIRES(mutex_);
  base::Status ask_for_chunks(const OperationPtr& operation) RONDE_REQUIRES(mutex_);
  base::Status pump(Peer& peer, Finished& finished) RONDE_REQUIRES(mutex_);
  void arrived(const OperationPtr& operation, Finished& finished) RONDE_REQUIRES(mutex_);
  base::Result<int> copy_piece(const OperationPtr& operation, Finished& finished);
  void end_hopeless(Finished& finished) RONDE_REQUIRES(mutex_);
  bool end_if_hopeless(const OperationPtr& operation, Finished& finished) RONDE_REQUIRES(mutex_);
  [[nodiscard]] bool has_ended(std::int32_t other) const RONDE_REQUIRES(mutex_);
  [[nodiscard]] base::Status hopeless(const Operation& operation) const RONDE_REQUIRES(mutex_);

  // ---- messages_late.cc ----
  void check_late();
  [[nodiscard]] base::Instant fails_at(const Operation& operation) const;
  [[nodiscard]] std::string stopped_here(std::int32_t* first, std::int32_t preferred) const;
  [[nodiscard]] base::Status mismatch(const Operation& receive, std::int32_t from,
                                      const Record& record) const;
  [[nodiscard]] base::Status not_received(std::int32_t from, const Record& record) const;
  [[nodiscard]] std::string text_of(const Operation& operation) const;
  [[nodiscard]] std::string late_text(const Operation& operation, base::Instant now,
                                      std::int32_t* culprit) const RONDE_REQUIRES(mutex_);

  // ---- messages_far.cc ----
  [[nodiscard]] bool is_far(std::int32_t rank) const {
    return context_.shape.host_of(rank) != context_.shape.host_of(context_.rank);
  }
  [[nodiscard]] std::int32_t position_of(std::int32_t rank) const {
    return context_.shape.position_of(rank);
  }
  [[nodiscard]] bool has_left(std::int32_t rank) const RONDE_REQUIRES(mutex_);
  base::Status take(std::int32_t from, std::size_t bytes) RONDE_REQUIRES(mutex_);
  base::Status take_chunk(std::int32_t from) RONDE_REQUIRES(mutex_);
  base::Status on_taken(std::int32_t from, const Record& record) RONDE_REQUIRES(mutex_);
  base::Status grant() RONDE_REQUIRES(mutex_);
  base::Status on_ask(std::int32_t from) RONDE_REQUIRES(mutex_);
  void on_state(std::int32_t from, const Received& received) RONDE_REQUIRES(mutex_);
  [[nodiscard]] std::vector<std::int32_t> far_hosts_of(const Operation& operation) const;
  bool has_asked(const Operation& operation, base::Instant due, bool fails) RONDE_REQUIRES(mutex_);
  [[nodiscard]] std::string far_text(const Operation& operation, std::int32_t* culprit) const
      RONDE_REQUIRES(mutex_);
  void take_departures() RONDE_REQUIRES(mutex_);
  void tell_all() const;

  const RankContext& context_;
  const std::int32_t me_;  // position
  const bool oversubscribed_;
  collectives::MessageWords& mine_;
  const Hooks hooks_;
  PeerCopy copy_;  // its ways are guarded by the mutex
  std::atomic<bool> in_use_{false};
  std::atomic<bool> moving_{false};
  std::atomic<bool> streaming_{false};
  std::atomic<bool> gives_up_{false};
  std::atomic<base::Instant> next_look_{base::kNever};
  mutable base::Mutex mutex_;
  base::Status failed_ RONDE_GUARDED_BY(mutex_);
  bool shut_ RONDE_GUARDED_BY(mutex_) = false;
  bool awaits_ RONDE_GUARDED_BY(mutex_) = false;
  bool any_ended_ RONDE_GUARDED_BY(mutex_) = false;
  bool warned_of_lost_ RONDE_GUARDED_BY(mutex_) = false;  // since it has been shut
  std::uint32_t seen_news_ RONDE_GUARDED_BY(mutex_) = 0;
  std::uint64_t last_id_ RONDE_GUARDED_BY(mutex_) = 0;
  std::vector<Peer> peers_ RONDE_GUARDED_BY(mutex_);              // by rank
  std::vector<std::int32_t> senders_ RONDE_GUARDED_BY(mutex_);    // with a channel to this rank
  std::vector<std::int32_t> receivers_ RONDE_GUARDED_BY(mutex_);  // with one from this rank
  Matching<OperationPtr, Arrived> matching_ RONDE_GUARDED_BY(mutex_);
  std::map<std::uint64_t, OperationPtr> in_flight_ RONDE_GUARDED_BY(mutex_);  // oldest first
  std::deque<OperationPtr> copies_ RONDE_GUARDED_BY(mutex_);
  // Receives of chunks, by sender and its number.
  std::map<std::pair<std::int32_t, std::uint64_t>, OperationPtr> chunked_ RONDE_GUARDED_BY(mutex_);
  std::size_t granted_ RONDE_GUARDED_BY(mutex_) = 0;  // of them from other hosts
  std::deque<OperationPtr> ungranted_ RONDE_GUARDED_BY(mutex_);
  std::deque<Departure> departures_ RONDE_GUARDED_BY(mutex_);         // of ranks of other hosts
  std::map<std::int32_t, HostState> hosts_ RONDE_GUARDED_BY(mutex_);  // that have been asked
  bool news_of_far_ RONDE_GUARDED_BY(mutex_) = false;
};

}  // namespace ronde::runtime
