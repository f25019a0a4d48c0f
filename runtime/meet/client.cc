// SPDX-License-Identifier: Apache-2.0
// The end of a meeting of every rank but 0: it reaches rank 0, sends its bytes of each round, and
// gets everybody's.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/numbers.h"
#include "base/wire/frame_socket.h"
#include "base/wire/hello.h"
#include "collectives/transport/roll.h"
#include "runtime/meet/meet.h"
#include "runtime/meet/place.h"

namespace ronde::runtime {

using base::Clock;
using base::Code;
using base::FileDescriptor;
using base::Instant;
using base::Nanoseconds;
using base::narrow;
using base::Result;
using base::Status;

namespace {

// How long one attempt may take: longer than a lost first packet takes to be sent again (1 s), and
// than rank 0 is away from its door.
constexpr Nanoseconds kReachTime = std::chrono::seconds(5);
// How long a second rank 0 waits for the answer of the first.
constexpr Nanoseconds kAskTime = std::chrono::seconds(1);
// The pause between two attempts; it grows, so that many ranks that wait for long cost little.
constexpr Nanoseconds kFirstRetryPause = std::chrono::milliseconds(5);
constexpr Nanoseconds kLongestRetryPause = std::chrono::milliseconds(250);

Status failed(const std::string& text) { return Status::error(Code::kTransport, text); }

// Another attempt cannot mend this; `text` goes to the user as it is.
Status hopeless(const std::string& text) { return Status::error(Code::kInvalidArgument, text); }

// Rank 0 has sent an empty verdict: it closed its last engine, and may open another one.
bool comes_again(const Status& status) { return !status.ok() && status.message().empty(); }

class MeetingClient final : public MeetingEnd {
 public:
  using MeetingEnd::MeetingEnd;

  Status come(const Clock& clock, Instant deadline);
  // One attempt; returns what the rank 0 that is there says.
  Status ask(const Clock& clock, Instant deadline);

  Result<Parts> allgather(std::span<const std::byte> mine, const std::string& activity,
                          const collectives::StartTrouble& trouble, const Clock& clock,
                          Instant deadline) override;

 private:
  void leave() override { socket_.reset(); }
  // One attempt to reach rank 0. kInvalidArgument ends them all; other errors are tried again.
  Status reach(const Clock& clock, Instant deadline);
  Result<FileDescriptor> connect(const Clock& clock, Instant deadline);
  Status prove(const FileDescriptor& socket, const Clock& clock, Instant deadline);
  // The bytes of all ranks, or the verdict.
  Result<Parts> answer(const Clock& clock, Instant deadline);
  [[nodiscard]] Status rank_0_gone(const std::string& how) const;

  std::optional<base::FrameSocket> socket_;  // to rank 0, until the start is over
};

Status MeetingClient::rank_0_gone(const std::string& how) const {
  const std::string& name = hello_of(0).host_name;
  const std::string host = name.empty() ? "" : " (host " + name + ")";
  return Status::error(Code::kPeerFailed, "rank 0" + host + " " + how + " while the ranks were " +
                                              activity_ + ": look at its output")
      .with_rank(0);
}

Result<FileDescriptor> MeetingClient::connect(const Clock& clock, Instant deadline) {
  if (plan_.point.one_host) return connect_on_host(plan_.point, clock, deadline);
  RONDE_ASSIGN_OR_RETURN(const auto addresses, addresses_of(plan_.point, clock, deadline));
  std::string tried;
  const auto note = [&](const base::Endpoint& to, const std::string& what) {
    tried += (tried.empty() ? "" : ", ") + text_of(to) + ": " + what;
  };
  for (const base::Endpoint& to : addresses) {
    auto socket = base::begin_connect(to, 0, plan_.keepalive);
    if (!socket.ok()) {
      note(to, socket.status().message());
      continue;
    }
    if (!base::wait_until_ready(*socket, POLLOUT, clock,
                                std::min(deadline, clock.after(kReachTime)))) {
      note(to, "timed out");
      continue;
    }
    const int error = base::pending_error(*socket);
    if (error == 0) return socket;
    note(to, base::error_text(error));
  }
  return failed(tried.empty() ? "the name " + plan_.point.host + " has no address" : tried);
}

Status MeetingClient::prove(const FileDescriptor& socket, const Clock& clock, Instant deadline) {
  using Got = base::HelloReader::Got;
  RONDE_ASSIGN_OR_RETURN(const Got got,
                         base::prove_to(socket, plan_.secret.bytes(), clock, deadline));
  switch (got) {
    case Got::kPart:
      return failed("connected, but there was no answer");
    case Got::kHello:
    case Got::kProven:
      return {};
    case Got::kEnd:
      return failed("connected, but the other end closed");
    case Got::kGarbage:
      return failed("what answers there is no rank 0 of this Ronde");
    case Got::kVersion:
      return hopeless("another version of Ronde answers as rank 0 at " + text_of(plan_.point) +
                      ": use the same libronde.so on every rank");
    case Got::kSecret:
      return hopeless("rank " + std::to_string(plan_.rank) + " and what answers as rank 0 at " +
                      text_of(plan_.point) +
                      " have different secrets: give every rank of the job the same "
                      "RONDE_JOB_SECRET (or RONDE_JOB_SECRET_FILE)");
  }
  return {};
}

Status MeetingClient::reach(const Clock& clock, Instant deadline) {
  RONDE_ASSIGN_OR_RETURN(auto socket, connect(clock, deadline));
  RONDE_RETURN_IF_ERROR(prove(socket, clock, std::min(deadline, clock.after(kReachTime))));
  socket_.emplace(base::LinkEnd{0, "rank 0 at " + text_of(plan_.point), std::move(socket)});
  MeetingHello mine = own_hello();
  mine.patience = patience_of(deadline - clock.now());
  return socket_->send(encode(mine));
}

Status MeetingClient::come(const Clock& clock, Instant deadline) {
  begin_round("meeting at " + text_of(plan_.point));
  Nanoseconds pause = kFirstRetryPause;
  const Instant began = clock.now();
  for (;;) {
    Status reached = reach(clock, deadline);
    if (reached.ok()) {
      const auto parts = answer(clock, deadline);
      if (parts.ok()) return take_hellos(*parts);
      if (!comes_again(parts.status())) return parts.status();
      reached = failed("rank 0 has closed its engine there");
    }
    if (reached.code() == Code::kInvalidArgument) return reached;
    if (clock.now() + pause >= deadline) {
      const auto waited = std::chrono::round<std::chrono::seconds>(clock.now() - began).count();
      return Status::error(Code::kDeadline,
                           "rank " + std::to_string(plan_.rank) + " did not reach rank 0 at " +
                               text_of(plan_) + " in " + std::to_string(waited) + " s (" +
                               reached.message() +
                               "): rank 0 was not started, has ended, or has begun without this "
                               "rank; or a firewall is between them "
                               "(RONDE_START_TIMEOUT_SECONDS raises the limit)")
          .with_rank(0);
    }
    const Instant until = clock.now() + pause;
    while (clock.now() < until) ::poll(nullptr, 0, base::poll_milliseconds(clock, until));
    pause = std::min(2 * pause, kLongestRetryPause);
  }
}

Status MeetingClient::ask(const Clock& clock, Instant deadline) {
  RONDE_RETURN_IF_ERROR(reach(clock, deadline));
  return answer(clock, deadline).status();
}

Result<MeetingClient::Parts> MeetingClient::answer(const Clock& clock, Instant deadline) {
  for (;;) {
    const auto frame = socket_->receive();
    if (!frame.ok()) return rank_0_gone("sent what cannot be read");
    if (!frame->has_value()) {
      if (socket_->closed()) return rank_0_gone("ended");
      if (clock.now() >= deadline) return roll_.absent({0});
      pollfd entry{socket_->fd(), narrow<short>(socket_->backlogged() ? POLLIN | POLLOUT : POLLIN),
                   0};
      if (::poll(&entry, 1, base::poll_milliseconds(clock, deadline)) > 0 &&
          (entry.revents & POLLOUT) != 0) {
        RONDE_RETURN_IF_ERROR(socket_->flush().status());
      }
      continue;
    }
    RONDE_ASSIGN_OR_RETURN(auto message, decode_meeting_message(**frame));
    if (const auto* const verdict = std::get_if<MeetingVerdict>(&message)) {
      return verdict->status();
    }
    auto* const all = std::get_if<MeetingAll>(&message);
    if (all == nullptr || all->round != round_ || std::ssize(all->parts) != plan_.size) {
      return rank_0_gone("sent something unexpected");
    }
    record(0, clock.now());
    return std::move(all->parts);
  }
}

Result<MeetingClient::Parts> MeetingClient::allgather(std::span<const std::byte> mine,
                                                      const std::string& activity,
                                                      const collectives::StartTrouble& trouble,
                                                      const Clock& clock, Instant deadline) {
  if (!socket_) return Status::error(Code::kClosed, "the meeting of the ranks is over");
  ++round_;
  begin_round(activity);
  MeetingPart part{
      round_, patience_of(deadline - clock.now()), trouble, {mine.begin(), mine.end()}};
  RONDE_RETURN_IF_ERROR(socket_->send(encode(std::move(part))));
  auto parts = answer(clock, deadline);
  if (!parts.ok()) socket_.reset();
  return parts;
}

}  // namespace

Result<std::unique_ptr<collectives::Meeting>> meet_rank_0(const MeetingPlan& plan,
                                                          const Clock& clock, Instant deadline) {
  auto client = std::make_unique<MeetingClient>(plan);
  RONDE_RETURN_IF_ERROR(client->come(clock, deadline));
  return std::unique_ptr<collectives::Meeting>(std::move(client));
}

Status ask_rank_0(const MeetingPlan& plan, const Clock& clock) {
  MeetingClient client(plan);
  return client.ask(clock, clock.after(kAskTime));
}

}  // namespace ronde::runtime
