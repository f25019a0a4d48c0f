// SPDX-License-Identifier: Apache-2.0
// Both sides of a handover: the leader's collecting of ranks, and a rank's conversation with it.
// The messages themselves are in handover_socket.cc.
#include "collectives/board/handover.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "base/host_name.h"
#include "base/numbers.h"
#include "base/process/secrets.h"
#include "base/text.h"
#include "base/wire/unix_socket.h"
#include "collectives/board/handover_socket.h"

namespace ronde::collectives {

namespace {

using base::Bytes;
using base::Clock;
using base::Code;
using base::FileDescriptor;
using base::Instant;
using base::narrow;
using base::Result;
using base::Status;

// The leader keeps this many connections without a hello more than there are ranks, and then closes
// the oldest, so that strangers cannot use up the descriptors. (A rank sends its hello at once, but
// many ranks may be accepted together before the first hello is read.)
constexpr std::size_t kMostStrangers = 64;

// Names a rank of this host in an error text.
std::string rank_text(int rank) {
  return "rank " + std::to_string(rank) + " (host " + base::host_name() + ")";
}

std::vector<int> raw_fds(const std::vector<FileDescriptor>& fds, std::size_t begin,
                         std::size_t count) {
  std::vector<int> raw;
  for (std::size_t i = begin; i < begin + count; ++i) raw.push_back(fds[i].get());
  return raw;
}

// Receives a message of this kind with this many descriptors; any other is an error.
Result<ReceivedMessage> expect(const FileDescriptor& socket, HandoverKind kind, std::size_t fds,
                               const Clock& clock, Instant deadline) {
  auto received = receive_message(socket, clock, deadline);
  if (!received.ok()) return received.status();
  if (received->message.kind == HandoverKind::kGaveUp) {
    return Status::error(Code::kDeadline, "it gave up waiting at its deadline");
  }
  if (received->message.kind != kind || received->fds.size() != fds) {
    return Status::error(Code::kMismatch, "it sent another message than the one expected");
  }
  return received;
}

// The leader's connections: strangers, which have not sent a hello yet, and members, which have.
class Gathering {
 public:
  Gathering(const FileDescriptor& listener, std::span<const int> ranks_on_host)
      : listener_(listener), ranks_(ranks_on_host), members_(ranks_on_host.size()) {}

  // Waits until every rank has sent its hello.
  Status gather(const Clock& clock, Instant deadline) {
    while (joined_ + 1 < ranks_.size()) {
      if (clock.now() >= deadline) return missing();
      RONDE_RETURN_IF_ERROR(wait(base::poll_milliseconds(clock, deadline)));
    }
    return {};
  }

  // Sends a message to a rank and waits for its kOk.
  Status exchange(std::size_t position, const HandoverMessage& message, const std::vector<int>& fds,
                  const Clock& clock, Instant deadline) {
    const FileDescriptor& socket = members_[position].socket;
    Status status = send_message(socket, message, fds, clock, deadline);
    // A rank that has closed its end may have sent kGaveUp before, which expect() still receives.
    if (status.ok() || status.code() == Code::kPeerFailed) {
      status = expect(socket, HandoverKind::kOk, 0, clock, deadline).status();
    }
    if (status.ok()) return {};
    return Status::error(status.code(),
                         "could not hand the board of this host to " + rank_text(ranks_[position]) +
                             "; see that rank's own output",
                         status)
        .with_rank(ranks_[position]);
  }

  // Moves the eventfds out, by position; `own` is the leader's.
  std::vector<FileDescriptor> take_event_fds(FileDescriptor own) {
    std::vector<FileDescriptor> fds;
    fds.push_back(std::move(own));
    for (std::size_t i = 1; i < members_.size(); ++i) {
      fds.push_back(std::move(members_[i].event_fd));
    }
    return fds;
  }

  // Moves the sockets out, by position; the leader's own place is empty.
  std::vector<FileDescriptor> take_connections() {
    std::vector<FileDescriptor> sockets;
    sockets.reserve(members_.size());
    for (Member& member : members_) sockets.push_back(std::move(member.socket));
    return sockets;
  }

 private:
  struct Member {
    FileDescriptor socket;
    FileDescriptor event_fd;
  };

  Status wait(int timeout_ms) {
    std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}};
    for (const FileDescriptor& stranger : strangers_) {
      entries.push_back({stranger.get(), POLLIN, 0});
    }
    // A member sends nothing before it is answered, unless it gives up: so a member that is
    // readable gave up or ended.
    const std::size_t first_member = entries.size();
    std::vector<std::size_t> positions;
    for (std::size_t i = 1; i < members_.size(); ++i) {
      if (!members_[i].socket.valid()) continue;
      entries.push_back({members_[i].socket.get(), POLLIN, 0});
      positions.push_back(i);
    }
    if (::poll(entries.data(), entries.size(), timeout_ms) < 0) {
      if (errno == EINTR) return {};
      return Status::system("could not wait for the ranks of this host", errno);
    }
    // The loop runs from the end, since receive_hello() removes the stranger. It comes before the
    // members, whose error names the ranks that are missing: a rank that has joined is not.
    for (std::size_t i = first_member - 1; i >= 1; --i) {
      if (entries[i].revents != 0) receive_hello(i - 1);
    }
    for (std::size_t i = first_member; i < entries.size(); ++i) {
      if (entries[i].revents != 0) return failure_of(positions[i - first_member]);
    }
    return entries[0].revents != 0 ? accept_some() : Status();
  }

  // Accepts no more than this at once, so that a stranger who connects in a loop cannot keep the
  // leader from its deadline.
  static constexpr int kMostPerLook = 64;

  Status accept_some() {
    for (int accepted = 0; accepted < kMostPerLook; ++accepted) {
      FileDescriptor socket = base::accept_member(listener_);
      if (!socket.valid()) {
        if (errno == EAGAIN) return {};
        if (errno == EINTR || errno == ECONNABORTED) continue;
        return Status::system("could not accept a rank of this host", errno);
      }
      if (!base::same_user(socket)) continue;
      if (strangers_.size() >= ranks_.size() + kMostStrangers) strangers_.erase(strangers_.begin());
      strangers_.push_back(std::move(socket));
    }
    return {};
  }

  // Reads what a stranger has sent: it becomes a member if that is the hello of a rank of this
  // host, and is closed otherwise.
  void receive_hello(std::size_t index) {
    FileDescriptor socket = std::move(strangers_[index]);
    strangers_.erase(strangers_.begin() + narrow<std::ptrdiff_t>(index));
    const base::SteadyClock clock;
    auto hello = receive_message(socket, clock, clock.now());  // it is there already
    if (!hello.ok() || hello->message.kind != HandoverKind::kHello || hello->fds.size() != 1 ||
        hello->message.ranks != ranks_.size()) {
      return;
    }
    const std::uint64_t position = hello->message.value;
    if (position == 0 || position >= members_.size() || members_[position].socket.valid()) return;
    members_[position] = {std::move(socket), std::move(hello->fds.front())};
    ++joined_;
  }

  // The error for a member that gave up or ended. A member whose deadline passed a moment before
  // the leader's waited for the same ranks, so they are named, and not the member.
  [[nodiscard]] Status failure_of(std::size_t position) const {
    const base::SteadyClock clock;
    const auto last = receive_message(members_[position].socket, clock, clock.now());
    if (last.ok() && last->message.kind == HandoverKind::kGaveUp) {
      if (joined_ + 1 < ranks_.size()) return missing();
      return Status::error(
                 Code::kDeadline,
                 rank_text(ranks_[position]) +
                     " gave up waiting for the board of this host; look at its output, or "
                     "raise RONDE_START_TIMEOUT_SECONDS")
          .with_rank(ranks_[position]);
    }
    return Status::error(Code::kPeerFailed,
                         rank_text(ranks_[position]) +
                             " ended while the ranks of this host were starting; see its output")
        .with_rank(ranks_[position]);
  }

  [[nodiscard]] Status missing() const {
    std::string names;
    int first = -1;
    for (std::size_t i = 1; i < members_.size(); ++i) {
      if (members_[i].socket.valid()) continue;
      if (first < 0) first = ranks_[i];
      names += (names.empty() ? "" : ", ") + std::to_string(ranks_[i]);
    }
    return Status::error(Code::kDeadline,
                         "these ranks of host " + base::host_name() +
                             " did not join in time: rank " + names +
                             "; look at their output, or raise RONDE_START_TIMEOUT_SECONDS")
        .with_rank(first);
  }

  const FileDescriptor& listener_;
  std::span<const int> ranks_;
  std::vector<Member> members_;
  std::vector<FileDescriptor> strangers_;
  std::size_t joined_ = 0;  // members without the leader
};

HandoverMessage make_message(HandoverKind kind, std::size_t ranks, std::uint64_t value) {
  HandoverMessage message;
  message.kind = kind;
  message.ranks = narrow<std::uint32_t>(ranks);
  message.value = value;
  return message;
}

Status not_received(std::span<const int> ranks_on_host, const Status& cause) {
  return Status::error(cause.code(),
                       "could not get the board of this host from " + rank_text(ranks_on_host[0]) +
                           "; look at that rank's output, or raise RONDE_START_TIMEOUT_SECONDS",
                       cause)
      .with_rank(ranks_on_host[0]);
}

// A rank's side of the messages, once it is connected to its leader.
Result<BoardHandover> receive_from_leader(const FileDescriptor& socket, std::size_t position,
                                          std::size_t ranks, const Clock& clock, Instant deadline) {
  RONDE_ASSIGN_OR_RETURN(auto own, make_event_fd());
  RONDE_RETURN_IF_ERROR(send_message(socket, make_message(HandoverKind::kHello, ranks, position),
                                     {own.get()}, clock, deadline));
  RONDE_ASSIGN_OR_RETURN(auto board, expect(socket, HandoverKind::kBoard, 1, clock, deadline));
  RONDE_ASSIGN_OR_RETURN(const auto bytes, base::try_narrow<std::int64_t>(board.message.value,
                                                                          "the size of the board"));
  RONDE_ASSIGN_OR_RETURN(auto memory,
                         SharedMemory::map_fd(std::move(board.fds.front()), Bytes(bytes)));
  const HandoverMessage ok = make_message(HandoverKind::kOk, ranks, position);
  RONDE_RETURN_IF_ERROR(send_message(socket, ok, {}, clock, deadline));

  std::vector<FileDescriptor> event_fds;
  while (event_fds.size() < ranks) {
    const std::size_t count = std::min(kFdsPerMessage, ranks - event_fds.size());
    RONDE_ASSIGN_OR_RETURN(auto batch,
                           expect(socket, HandoverKind::kEventFds, count, clock, deadline));
    std::move(batch.fds.begin(), batch.fds.end(), std::back_inserter(event_fds));
    RONDE_RETURN_IF_ERROR(send_message(socket, ok, {}, clock, deadline));
  }
  return BoardHandover{std::move(memory),
                       std::make_shared<const std::vector<FileDescriptor>>(std::move(event_fds)),
                       std::vector<FileDescriptor>(ranks)};
}

}  // namespace

Result<HandoverListener> HandoverListener::open() {
  RONDE_ASSIGN_OR_RETURN(const auto random, base::random_bytes<16>());
  std::string name = base::hex_of(random);
  RONDE_ASSIGN_OR_RETURN(auto socket, base::listen_abstract(name));
  return HandoverListener(std::move(socket), std::move(name));
}

Result<BoardHandover> HandoverListener::hand_over(std::shared_ptr<SharedMemory> memory,
                                                  std::span<const int> ranks_on_host,
                                                  const Clock& clock, Instant deadline) {
  const std::size_t ranks = ranks_on_host.size();
  RONDE_ASSIGN_OR_RETURN(auto own, make_event_fd());
  Gathering gathering(socket_, ranks_on_host);
  RONDE_RETURN_IF_ERROR(gathering.gather(clock, deadline));
  std::vector<FileDescriptor> event_fds = gathering.take_event_fds(std::move(own));
  const HandoverMessage board = make_message(HandoverKind::kBoard, ranks, memory->bytes().size());
  for (std::size_t position = 1; position < ranks; ++position) {
    RONDE_RETURN_IF_ERROR(gathering.exchange(position, board, {memory->fd()}, clock, deadline));
  }
  // Each batch is confirmed before the next is sent, since the kernel bounds the descriptors in
  // flight.
  for (std::size_t position = 1; position < ranks; ++position) {
    for (std::size_t begin = 0; begin < ranks; begin += kFdsPerMessage) {
      const std::size_t count = std::min(kFdsPerMessage, ranks - begin);
      RONDE_RETURN_IF_ERROR(gathering.exchange(position,
                                               make_message(HandoverKind::kEventFds, ranks, begin),
                                               raw_fds(event_fds, begin, count), clock, deadline));
    }
  }
  return BoardHandover{std::move(memory),
                       std::make_shared<const std::vector<FileDescriptor>>(std::move(event_fds)),
                       gathering.take_connections()};
}

Result<BoardHandover> receive_board(const std::string& name, std::size_t position,
                                    std::span<const int> ranks_on_host, const Clock& clock,
                                    Instant deadline) {
  auto socket = base::connect_abstract(name, clock, deadline);
  if (!socket.ok()) return not_received(ranks_on_host, socket.status());
  if (!base::same_user(*socket)) {
    return not_received(ranks_on_host,
                        Status::error(Code::kSystem, "its socket belongs to another user"));
  }
  const std::size_t ranks = ranks_on_host.size();
  auto board = receive_from_leader(*socket, position, ranks, clock, deadline);
  if (board.ok()) {
    board->connections.front() = std::move(*socket);
    return board;
  }
  if (board.status().code() == Code::kDeadline) {
    // If this message is lost, the leader takes the end of the connection for a death.
    static_cast<void>(send_message(*socket, make_message(HandoverKind::kGaveUp, ranks, position),
                                   {}, clock, deadline));
  }
  return not_received(ranks_on_host, board.status());
}

}  // namespace ronde::collectives
