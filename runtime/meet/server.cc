// SPDX-License-Identifier: Apache-2.0
// Rank 0's end of a meeting: it lets the other ranks in, and then collects and hands out the bytes
// of each round. One loop over poll() serves all of them.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/numbers.h"
#include "base/wire/frame_socket.h"
#include "collectives/transport/roll.h"
#include "runtime/meet/lobby.h"
#include "runtime/meet/meet.h"

namespace ronde::runtime {

using base::Clock;
using base::Code;
using base::Instant;
using base::narrow;
using base::Result;
using base::Status;

namespace {

// How long rank 0 stays after a failure, to tell those that come a little later.
constexpr base::Nanoseconds kLinger = std::chrono::seconds(2);

class MeetingServer final : public MeetingEnd {
 public:
  MeetingServer(const MeetingPlan& plan, const Clock& clock)
      : MeetingEnd(plan), clock_(clock), members_(hellos_.size()) {}
  ~MeetingServer() override { close_door(); }

  Status gather(const Clock& clock, Instant deadline);

  Result<Parts> allgather(std::span<const std::byte> mine, const std::string& activity,
                          const collectives::StartTrouble& trouble, const Clock& clock,
                          Instant deadline) override;
  void started() override { hang_up(); }
  [[nodiscard]] collectives::Visitors visitors() override;

 private:
  struct Member {
    base::FrameSocket socket;
    std::string text;  // "rank 3 (host node2, pid 4711)"
  };

  void leave() override {
    hang_up();
    close_door();
  }
  void hang_up() {
    members_.clear();
    strays_.clear();
  }
  void close_door() {
    if (const auto lobby = std::exchange(lobby_, nullptr)) lobby->leave(clock_);
  }
  // Lets in those that have come to the lobby.
  Status let_in_all(const Clock& clock);
  // Collects the hellos, or the parts of this round, of the others, and hands all out.
  Result<Parts> collect(std::span<const std::byte> mine, const collectives::StartTrouble& trouble,
                        const Clock& clock, Instant deadline);
  // One poll, and all that it shows. The first error fails the meeting.
  Status step(const Clock& clock, Instant until);
  Status let_in(Arrival arrival, const Clock& clock);
  // Whether this is the end of a rank that had no answer in time, since rank 0 got no core.
  [[nodiscard]] bool gave_up(const Status& why, Instant now) const {
    return why.code() == Code::kPeerFailed && now >= answer_by() && why.rank() &&
           has_part(*why.rank());
  }
  Status read(std::size_t rank, Instant now);
  // Everybody gets this error; with kLatecomers also those that come within kLinger.
  enum class Awaits : std::uint8_t { kNobody, kLatecomers };
  Status fail(const Status& why, const Clock& clock, Awaits awaits = Awaits::kLatecomers);
  // One poll after a failure; returns how many ranks have heard of it.
  std::size_t tell(const Clock& clock, Instant until);
  // Sends what the sockets did not take at once.
  Status flush(const Clock& clock, Instant deadline);
  [[nodiscard]] Status somebody_missing();
  void hand_out(const Parts& parts);

  const Clock& clock_;
  std::shared_ptr<Lobby> lobby_;
  std::vector<std::optional<Member>> members_;  // by rank; rank 0 is none
  std::vector<base::FrameSocket> strays_;       // came too late, twice, or with another size
  Status failed_;
};

// It reads nothing: a rank that has everything may have begun the next round.
Status MeetingServer::flush(const Clock& clock, Instant deadline) {
  for (;;) {
    std::vector<pollfd> entries;
    std::vector<base::FrameSocket*> sockets;
    for (auto& member : members_) {
      if (!member || !member->socket.backlogged()) continue;
      entries.push_back({member->socket.fd(), POLLOUT, 0});
      sockets.push_back(&member->socket);
    }
    if (sockets.empty()) return {};
    if (clock.now() >= deadline) {
      return fail(Status::error(Code::kDeadline,
                                "the ranks did not take in time what rank 0 sent "
                                "them while they were " +
                                    activity_),
                  clock, Awaits::kNobody);
    }
    if (::poll(entries.data(), entries.size(), base::poll_milliseconds(clock, deadline)) < 0)
      continue;
    for (base::FrameSocket* const socket : sockets) {
      const auto flushed = socket->flush();
      if (!flushed.ok()) return fail(flushed.status(), clock, Awaits::kNobody);
    }
  }
}

Status MeetingServer::step(const Clock& clock, Instant until) {
  std::vector<pollfd> entries{{lobby_->fd(), POLLIN, 0}};
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    if (!members_[rank]) continue;
    const base::FrameSocket& socket = members_[rank]->socket;
    const int events = socket.backlogged() ? POLLIN | POLLOUT : POLLIN;
    entries.push_back({socket.fd(), narrow<short>(events), 0});
    ranks.push_back(rank);
  }
  if (::poll(entries.data(), entries.size(), base::poll_milliseconds(clock, until)) < 0) {
    return errno == EINTR ? Status()
                          : Status::system("rank 0 could not wait for the other ranks", errno);
  }
  const Instant now = clock.now();
  Status first;
  const auto note = [&first](Status one) {
    if (first.ok()) first = std::move(one);
  };
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const short events = entries[1 + i].revents;
    if ((events & POLLOUT) != 0) note(members_[ranks[i]]->socket.flush().status());
    if ((events & ~POLLOUT) != 0) note(read(ranks[i], now));
  }
  note(let_in_all(clock));
  return first;
}

Status MeetingServer::let_in_all(const Clock& clock) {
  Status trouble = lobby_->answer(clock);
  // Further engines of these ranks wait until the next meeting.
  if (round_ > 0) return trouble;
  for (Arrival& arrival : lobby_->take()) {
    const Status one = let_in(std::move(arrival), clock);
    if (trouble.ok()) trouble = one;
  }
  return trouble;
}

// The first error counts; afterwards ranks that come are only told.
Status MeetingServer::let_in(Arrival arrival, const Clock& clock) {
  const MeetingHello& hello = arrival.hello;
  Status wrong = failed_.ok() ? check(hello) : failed_;
  const auto rank = narrow<std::size_t>(std::max(hello.rank, 0));
  if (wrong.ok() && members_[rank]) {
    wrong = Status::error(
                Code::kInvalidArgument,
                "two processes came as rank " + std::to_string(hello.rank) + ": " +
                    text_of_rank(hello_of(hello.rank)) + " and " + text_of_rank(hello) +
                    ": give each a rank of its own (RONDE_RANK); or, if two jobs begin here, " +
                    kApart + " or a RONDE_JOB")
                .with_rank(hello.rank);
  }
  if (!wrong.ok()) {
    strays_.push_back(std::move(arrival.socket));
    if (!failed_.ok()) return strays_.back().send(encode(MeetingVerdict::of(failed_)));
    return wrong;
  }
  hellos_[rank] = hello;
  take_part(hello.rank, {0, hello.patience, {}, encode(hello)}, arrival.since, clock.now());
  members_[rank].emplace(Member{std::move(arrival.socket), text_of_rank(hello)});
  return {};
}

Status MeetingServer::read(std::size_t rank, Instant now) {
  Member& member = *members_[rank];
  const auto gone = [&](const std::string& how) {
    return Status::error(Code::kPeerFailed, member.text + " " + how + " while the ranks were " +
                                                activity_ + ": look at its output")
        .with_rank(narrow<std::int32_t>(rank));
  };
  for (;;) {
    const auto frame = member.socket.receive();
    if (!frame.ok()) return gone("sent what cannot be read");
    if (!frame->has_value()) return member.socket.closed() ? gone("ended") : Status();
    RONDE_ASSIGN_OR_RETURN(auto message, decode_meeting_message(**frame));
    auto* const part = std::get_if<MeetingPart>(&message);
    const auto from = narrow<std::int32_t>(rank);
    if (part == nullptr || part->round != round_ || has_part(from)) {
      return gone("sent something unexpected");
    }
    take_part(from, std::move(*part), now, now);
  }
}

Status MeetingServer::somebody_missing() {
  Status why = too_late();
  const std::string strangers = round_ == 0 ? lobby_->turned_away() : "";
  if (strangers.empty() || why.code() != Code::kDeadline) return why;
  return Status::error(why.code(), why.message() + strangers).with_rank(why.rank().value_or(-1));
}

Status MeetingServer::fail(const Status& why, const Clock& clock, Awaits awaits) {
  failed_ = why;
  for (auto& member : members_) {
    if (member) strays_.push_back(std::move(member->socket));
    member.reset();
  }
  const auto verdict = encode(MeetingVerdict::of(why));
  for (base::FrameSocket& socket : strays_) socket.send(verdict).ignore();
  const Instant until = clock.after(kLinger);
  std::size_t told = 0;
  const auto goes_on = [&] {
    return !strays_.empty() ||
           (awaits == Awaits::kLatecomers && round_ == 0 && told + 1 < members_.size());
  };
  while (clock.now() < until && goes_on()) told += tell(clock, until);
  // The error of a deadline names them itself.
  if (awaits == Awaits::kLatecomers) lobby_->report();
  leave();
  return why;
}

// Closing first could take the verdict from a rank that has sent something in the meantime, so rank
// 0 waits until the others have closed.
std::size_t MeetingServer::tell(const Clock& clock, Instant until) {
  std::vector<pollfd> entries;
  entries.reserve(strays_.size());
  for (const base::FrameSocket& socket : strays_) {
    entries.push_back(
        {socket.fd(), narrow<short>(socket.backlogged() ? POLLIN | POLLOUT : POLLIN), 0});
  }
  const std::size_t heard = entries.size();
  entries.push_back({lobby_->fd(), POLLIN, 0});
  if (::poll(entries.data(), entries.size(), base::poll_milliseconds(clock, until)) < 0) return 0;
  const auto over = [](base::FrameSocket& socket) {
    if (!socket.flush().ok()) return true;
    for (;;) {
      const auto frame = socket.receive();
      if (!frame.ok() || !frame->has_value()) return !frame.ok() || socket.closed();
    }
  };
  std::vector<base::FrameSocket> left;
  for (std::size_t i = 0; i < heard; ++i) {
    if (entries[i].revents == 0 || !over(strays_[i])) left.push_back(std::move(strays_[i]));
  }
  strays_ = std::move(left);
  const std::size_t told = heard - strays_.size();
  let_in_all(clock).ignore();
  return told;
}

collectives::Visitors MeetingServer::visitors() {
  if (lobby_ == nullptr) return {};
  return {lobby_->fd(), [lobby = lobby_, &clock = clock_] { return lobby->attend(clock); }};
}

void MeetingServer::hand_out(const Parts& parts) {
  const auto bytes = encode(MeetingAll{round_, parts});
  // A rank that has just died shows in the next round.
  for (auto& member : members_) {
    if (member) member->socket.send(bytes).ignore();
  }
}

Result<MeetingServer::Parts> MeetingServer::collect(std::span<const std::byte> mine,
                                                    const collectives::StartTrouble& trouble,
                                                    const Clock& clock, Instant deadline) {
  const Instant began = clock.now();
  open_round({round_, patience_of(deadline - began), trouble, {mine.begin(), mine.end()}}, began);
  while (!complete()) {
    const bool is_last = clock.now() >= answer_by();  // what has come is not missing
    const Status stepped = step(clock, answer_by());
    const bool goes_on = stepped.ok() || (!complete() && gave_up(stepped, clock.now()));
    if (!goes_on) return fail(stepped, clock);
    if (is_last && !complete()) return fail(somebody_missing(), clock, Awaits::kNobody);
  }
  if (round_ == 0) {
    lobby_->complete(hellos_);
    lobby_->report();
  }
  Parts parts = take_parts();
  hand_out(parts);
  RONDE_RETURN_IF_ERROR(flush(clock, deadline));
  return parts;
}

Status MeetingServer::gather(const Clock& clock, Instant deadline) {
  auto lobby = Lobby::enter(plan_, own_hello());
  if (!lobby.ok()) {
    if (lobby.status().code() != Code::kSystem) return lobby.status();
    // Where another rank 0 listens it says so by name.
    const auto other = ask_rank_0(plan_, clock);
    return other ? other->with_rank(0) : lobby.status();
  }
  lobby_ = std::move(*lobby);
  begin_round("meeting at " + text_of(plan_.point));
  return collect(encode(own_hello()), {}, clock, deadline).status();
}

Result<MeetingServer::Parts> MeetingServer::allgather(std::span<const std::byte> mine,
                                                      const std::string& activity,
                                                      const collectives::StartTrouble& trouble,
                                                      const Clock& clock, Instant deadline) {
  if (!failed_.ok()) return failed_;
  if (members_.empty()) {
    return Status::error(Code::kClosed, "the meeting of the ranks is over");
  }
  ++round_;
  begin_round(activity);
  return collect(mine, trouble, clock, deadline);
}

}  // namespace

Result<std::unique_ptr<collectives::Meeting>> meet_as_rank_0(const MeetingPlan& plan,
                                                             const Clock& clock, Instant deadline) {
  auto server = std::make_unique<MeetingServer>(plan, clock);
  RONDE_RETURN_IF_ERROR(server->gather(clock, deadline));
  return std::unique_ptr<collectives::Meeting>(std::move(server));
}

}  // namespace ronde::runtime
