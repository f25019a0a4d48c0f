// SPDX-License-Identifier: Apache-2.0
// Both sides of a handover: who comes in by the leader's door, and what it is sent.
#include "collectives/board/handover.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "base/codec.h"
#include "base/host_name.h"
#include "base/numbers.h"
#include "base/process/secrets.h"
#include "base/text.h"
#include "base/wire/door.h"
#include "base/wire/hello.h"
#include "base/wire/unix_socket.h"

namespace ronde::collectives {

namespace {

using base::Clock;
using base::Code;
using base::FileDescriptor;
using base::Instant;
using base::narrow;
using base::Result;
using base::Status;

// The kernel takes at most 253 descriptors in one message.
constexpr std::size_t kFdsPerMessage = 200;

struct Hello {
  std::uint64_t position = 0;
  std::uint64_t ranks = 0;  // on the host
};
void fields(auto& f, base::Is<Hello> auto& hello) { f(hello.position, hello.ranks); }

// Names a rank of this host in an error text.
std::string rank_text(int rank) {
  return "rank " + std::to_string(rank) + " (host " + base::host_name() + ")";
}

Status past_deadline() { return Status::error(Code::kDeadline, "the deadline has passed"); }
Status other_end_closed() {
  return Status::error(Code::kPeerFailed, "the other end of the socket is closed");
}
// Whether it is one of these two; otherwise this process lacks memory or descriptors.
bool of_other_end(const Status& trouble) {
  return trouble.code() == Code::kDeadline || trouble.code() == Code::kPeerFailed;
}

// A message of a byte, and of descriptors.
struct Message {
  explicit Message(std::size_t fds) {
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(sizeof(int) * fds);
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  char byte = 0;
  iovec bytes{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kFdsPerMessage)] = {};
  msghdr header{};
};

// The receiver gets duplicates. more: this is not the last batch.
Status send_batch(const FileDescriptor& socket, std::span<const int> fds, bool more,
                  const Clock& clock, Instant deadline) {
  Message message(fds.size());
  message.byte = more ? 1 : 0;
  cmsghdr* const rights = CMSG_FIRSTHDR(&message.header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  while (::sendmsg(socket.get(), &message.header, MSG_NOSIGNAL) < 0) {
    if (errno == EPIPE || errno == ECONNRESET) return other_end_closed();
    // The kernel bounds a user's descriptors on their way, and announces nowhere that some arrived.
    if (errno != ETOOMANYREFS && errno != EAGAIN && errno != EINTR) {
      return Status::system("could not send over a Unix socket", errno);
    }
    if (clock.now() >= deadline) return past_deadline();
    ::poll(nullptr, 0, 1);
  }
  return {};
}

// Appends what send_batch() has sent, and returns whether there is more; the kernel does not join
// messages that carry descriptors.
Result<bool> receive_batch(const FileDescriptor& socket, std::vector<FileDescriptor>& fds,
                           const Clock& clock, Instant deadline) {
  while (base::wait_until_ready(socket, POLLIN, clock, deadline)) {
    Message message(kFdsPerMessage);
    const ssize_t size = ::recvmsg(socket.get(), &message.header, MSG_CMSG_CLOEXEC);
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (size == 0 || (size < 0 && errno == ECONNRESET)) return other_end_closed();
    if (size < 0) return Status::system("could not receive over a Unix socket", errno);
    // Owned before anything else is looked at, so that none leaks.
    const cmsghdr* const rights = CMSG_FIRSTHDR(&message.header);
    const std::size_t bytes = rights == nullptr ? 0 : rights->cmsg_len - CMSG_LEN(0);
    for (std::size_t at = 0; at < bytes; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights) + at, sizeof fd);
      fds.emplace_back(fd);
    }
    if ((message.header.msg_flags & MSG_CTRUNC) != 0) {
      return Status::error(Code::kSystem,
                           "not all descriptors arrived: the limit of open files (ulimit -n) is "
                           "too low for this many ranks on a host");
    }
    return message.byte != 0;
  }
  return past_deadline();
}

// The leader's door, and those that have come in.
class Gathering {
 public:
  Gathering(const FileDescriptor& listener, std::span<const std::byte> secret,
            std::span<const int> ranks_on_host)
      : door_({{&listener},
               base::accept_member,
               {secret.begin(), secret.end()},
               "the secret",
               "while the ranks of this host came for its board",
               std::ssize(ranks_on_host)}),
        ranks_(ranks_on_host),
        members_(ranks_.size()) {}

  // Waits until every rank has said hello.
  Status gather(const Clock& clock, Instant deadline) {
    while (!missing().empty()) {
      if (clock.now() >= deadline) return absent();
      std::vector<pollfd> entries;
      door_.watch(entries);
      const std::size_t doors = entries.size();
      // A member sends nothing unless it gives up: so one that is readable gave up or ended.
      for (const FileDescriptor& member : members_) entries.push_back({member.get(), POLLIN, 0});
      if (::poll(entries.data(), entries.size(), base::poll_milliseconds(clock, deadline)) < 0) {
        if (errno == EINTR) continue;
        return Status::system("could not wait for the ranks of this host", errno);
      }
      // The guests come before the members, whose error names the ranks that are missing.
      const std::span<const pollfd> all(entries);
      std::vector<base::Guest> guests;
      RONDE_RETURN_IF_ERROR(door_.step(all.first(doors), clock.now(), guests));
      for (base::Guest& guest : guests) let_in(std::move(guest));
      for (std::size_t i = 0; i < members_.size(); ++i) {
        if (all[doors + i].revents != 0) return failure_of(i);
      }
    }
    return {};
  }
  void report(const base::Log& log) { door_.report(log); }

  Status give(std::size_t position, std::span<const int> fds, const Clock& clock,
              Instant deadline) {
    while (!fds.empty()) {
      const std::size_t count = std::min(kFdsPerMessage, fds.size());
      Status sent =
          send_batch(members_[position], fds.first(count), count < fds.size(), clock, deadline);
      if (!sent.ok()) return of_other_end(sent) ? failure_of(position) : sent;
      fds = fds.subspan(count);
    }
    return {};
  }
  // By position; the leader's own place is empty.
  std::vector<FileDescriptor> take_connections() { return std::move(members_); }

 private:
  void let_in(base::Guest guest) {
    const auto hello = base::decoded<Hello>(guest.hello);
    if (!hello.ok() || hello->ranks != ranks_.size() || hello->position == 0 ||
        hello->position >= members_.size() || members_[hello->position].valid()) {
      return door_.count("what came was no rank that this host awaits", guest.from);
    }
    members_[hello->position] = std::move(guest.socket);
  }

  // The error for a member that ended, gave up or takes nothing. One whose deadline passed a moment
  // before the leader's waited for the same ranks, so they are named, and not the member.
  [[nodiscard]] Status failure_of(std::size_t position) const {
    char byte = 0;
    const ssize_t got = ::recv(members_[position].get(), &byte, 1, MSG_DONTWAIT);
    if (got > 0 && !missing().empty()) return absent();
    const bool lives = got > 0 || (got < 0 && errno == EAGAIN);
    const char* const what =
        lives ? " did not take the board of this host in time; look at its output, or raise "
                "RONDE_START_TIMEOUT_SECONDS"
              : " ended while the ranks of this host were starting; see its output";
    return Status::error(lives ? Code::kDeadline : Code::kPeerFailed,
                         rank_text(ranks_[position]) + what)
        .with_rank(ranks_[position]);
  }

  [[nodiscard]] std::vector<int> missing() const {
    std::vector<int> ranks;
    for (std::size_t i = 1; i < members_.size(); ++i) {
      if (!members_[i].valid()) ranks.push_back(ranks_[i]);
    }
    return ranks;
  }
  [[nodiscard]] Status absent() const {
    std::vector<std::string> names;
    for (const int rank : missing()) names.push_back(std::to_string(rank));
    return Status::error(Code::kDeadline,
                         "these ranks of host " + base::host_name() +
                             " did not join in time: rank " + base::joined(names, ", ") +
                             "; look at their output, or raise RONDE_START_TIMEOUT_SECONDS")
        .with_rank(missing().front());
  }

  base::Door door_;
  std::span<const int> ranks_;
  std::vector<FileDescriptor> members_;  // by position; not valid: has not come
};

// Connects to the leader and comes in; again if the door was closed, because this rank was slow.
Result<FileDescriptor> come(const std::string& name, const Hello& hello, const Clock& clock,
                            Instant deadline) {
  using Got = base::HelloReader::Got;
  const auto secret = std::as_bytes(std::span(name));
  do {
    RONDE_ASSIGN_OR_RETURN(auto socket, base::connect_abstract(name, clock, deadline));
    if (!base::same_user(socket)) {
      return Status::error(Code::kSystem, "its socket belongs to another user");
    }
    RONDE_ASSIGN_OR_RETURN(const Got got, base::prove_to(socket, secret, clock, deadline));
    if (got == Got::kProven && base::send_hello(socket, base::encoded(hello))) return socket;
    if (got != Got::kProven && got != Got::kEnd && got != Got::kPart) {
      return Status::error(Code::kMismatch, "its socket is not that of this version of Ronde");
    }
  } while (clock.now() < deadline);
  return past_deadline();
}

// A rank's part, once it has come in.
Result<BoardHandover> receive_from_leader(const FileDescriptor& socket, std::size_t ranks,
                                          const Clock& clock, Instant deadline) {
  std::vector<FileDescriptor> event_fds;
  for (bool more = true; more;) {
    RONDE_ASSIGN_OR_RETURN(more, receive_batch(socket, event_fds, clock, deadline));
  }
  if (event_fds.size() <= ranks) {
    return Status::error(Code::kInternal, "the leader has sent too few descriptors");
  }
  const auto own = event_fds.end() - narrow<std::ptrdiff_t>(ranks);
  std::vector<FileDescriptor> of_memory(std::make_move_iterator(event_fds.begin()),
                                        std::make_move_iterator(own));
  event_fds.erase(event_fds.begin(), own);
  RONDE_ASSIGN_OR_RETURN(auto memory, SharedMemory::map_fds(std::move(of_memory)));
  return BoardHandover{std::move(memory),
                       std::make_shared<const std::vector<FileDescriptor>>(std::move(event_fds)),
                       std::vector<FileDescriptor>(ranks)};
}

Status not_received(std::span<const int> ranks_on_host, const Status& cause) {
  return Status::error(cause.code(),
                       "could not get the board of this host from " + rank_text(ranks_on_host[0]) +
                           "; look at that rank's output, or raise RONDE_START_TIMEOUT_SECONDS",
                       cause)
      .with_rank(ranks_on_host[0]);
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
                                                  const Clock& clock, Instant deadline,
                                                  const base::Log& log) {
  const std::size_t ranks = ranks_on_host.size();
  RONDE_ASSIGN_OR_RETURN(auto event_fds, make_event_fds(narrow<int>(ranks)));
  Gathering gathering(socket_, std::as_bytes(std::span(name_)), ranks_on_host);
  const Status gathered = gathering.gather(clock, deadline);
  gathering.report(log);
  RONDE_RETURN_IF_ERROR(gathered);
  std::vector<int> fds = memory->fds();
  for (const FileDescriptor& one : *event_fds) fds.push_back(one.get());
  for (std::size_t position = 1; position < ranks; ++position) {
    RONDE_RETURN_IF_ERROR(gathering.give(position, fds, clock, deadline));
  }
  return BoardHandover{std::move(memory), std::move(event_fds), gathering.take_connections()};
}

Result<BoardHandover> receive_board(const std::string& name, std::size_t position,
                                    std::span<const int> ranks_on_host, const Clock& clock,
                                    Instant deadline) {
  const std::size_t ranks = ranks_on_host.size();
  auto socket = come(name, {position, ranks}, clock, deadline);
  if (!socket.ok()) return not_received(ranks_on_host, socket.status());
  auto board = receive_from_leader(*socket, ranks, clock, deadline);
  if (board.ok()) {
    board->connections.front() = std::move(*socket);
    return board;
  }
  if (!of_other_end(board.status())) return board;
  if (board.status().code() == Code::kDeadline) {
    // If this byte is lost, the leader takes the end of the connection for a death.
    static_cast<void>(::send(socket->get(), "", 1, MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  return not_received(ranks_on_host, board.status());
}

}  // namespace ronde::collectives
