// SPDX-License-Identifier: Apache-2.0
// The end of a meeting of every rank but 0: it reaches rank 0, sends its bytes of each round, and
// gets everybody's.
#include <poll.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/numbers.h"
#include "base/wire/frame_socket.h"
#include "base/wire/search.h"
#include "collectives/transport/roll.h"
#include "runtime/meet/meet.h"
#include "runtime/meet/place.h"

namespace ronde::runtime {

using base::Clock;
using base::Code;
using base::Instant;
using base::Nanoseconds;
using base::Result;
using base::Status;

namespace {

// After so long a name is looked up anew, and what accepts without an answer is tried again: rank 0
// is away from its door for less.
constexpr Nanoseconds kReachTime = std::chrono::seconds(5);
// How long a second rank 0 waits for the answer of the first.
constexpr Nanoseconds kAskTime = std::chrono::seconds(1);
// The pause between two searches.
constexpr Nanoseconds kPause = std::chrono::milliseconds(20);

Status failed(const std::string& text) { return Status::error(Code::kTransport, text); }

// Another attempt cannot mend this; `text` goes to the user as it is.
Status hopeless(const std::string& text) { return Status::error(Code::kInvalidArgument, text); }

// Rank 0 has sent an empty verdict: it closed its last engine, and may open another one.
bool comes_again(const Status& status) { return !status.ok() && status.message().empty(); }

class MeetingClient final : public MeetingEnd {
 public:
  using MeetingEnd::MeetingEnd;

  Status come(const Clock& clock, Instant deadline);
  // One attempt; what the rank 0 that is there says to a second one.
  std::optional<Status> ask(const Clock& clock, Instant deadline);

  Result<Parts> allgather(std::span<const std::byte> mine, const std::string& activity,
                          const collectives::StartTrouble& trouble, const Clock& clock,
                          Instant deadline) override;

 private:
  void leave() override { socket_.reset(); }
  // One search for rank 0. kInvalidArgument ends them all; other errors are tried again.
  Status reach(const Clock& clock, Instant deadline);
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

Status MeetingClient::reach(const Clock& clock, Instant deadline) {
  base::SearchPlan plan;
  if (plan_.point.on_host()) {
    plan.addresses.push_back(
        {text_of(plan_.point), [&] { return connect_on_host(plan_.point, clock, clock.now()); }});
  } else {
    RONDE_ASSIGN_OR_RETURN(const auto addresses, addresses_of(plan_.point, clock, deadline));
    for (const base::Endpoint& to : addresses) {
      plan.addresses.push_back(base::SearchPlan::at(to, 0, plan_.keepalive));
    }
  }
  plan.secret.assign(plan_.secret.bytes().begin(), plan_.secret.bytes().end());
  plan.hello = [&] {
    MeetingHello mine = own_hello();
    mine.patience = patience_of(deadline - clock.now());
    return encode(mine);
  };
  base::Search search(std::move(plan));
  RONDE_RETURN_IF_ERROR(search.run(clock, std::min(deadline, clock.after(kReachTime))));
  if (auto found = search.take()) {
    socket_.emplace(
        base::LinkEnd{0, "rank 0 at " + text_of(plan_.point), std::move(found->socket)});
    return {};
  }
  if (!search.refusal()) return failed(search.tried());
  const std::string there = "what answers as rank 0 at " + text_of(plan_.point);
  return hopeless(search.refusal() == base::HelloReader::Got::kVersion
                      ? there +
                            " is of another version of Ronde: use the same libronde.so on "
                            "every rank"
                      : "rank " + std::to_string(plan_.rank) + " and " + there +
                            " have different secrets: give every rank of the job the same "
                            "RONDE_JOB_SECRET (or RONDE_JOB_SECRET_FILE)");
}

Status MeetingClient::come(const Clock& clock, Instant deadline) {
  begin_round("meeting at " + text_of(plan_.point));
  const Instant began = clock.now();
  for (;;) {
    Status reached = reach(clock, deadline);
    if (reached.ok()) {
      const auto parts = answer(clock, deadline);
      if (parts.ok()) return take_hellos(*parts);
      if (!comes_again(parts.status())) return parts.status();
      if (clock.now() < deadline) continue;
      reached = failed("rank 0 has closed its engine there");
    }
    if (reached.code() == Code::kInvalidArgument) return reached;
    if (clock.now() + kPause >= deadline) {
      const auto waited = std::chrono::round<std::chrono::seconds>(clock.now() - began).count();
      return Status::error(
                 Code::kDeadline,
                 "rank " + std::to_string(plan_.rank) + " did not reach rank 0 at " +
                     text_of(plan_) + " in " + std::to_string(waited) + " s (" + reached.message() +
                     "): rank 0 was not started, has ended, or has begun without this "
                     "rank; or a firewall is between them, or who listens there is stopped "
                     "(RONDE_START_TIMEOUT_SECONDS raises the limit)")
          .with_rank(0);
    }
    const Instant until = clock.now() + kPause;
    while (clock.now() < until) ::poll(nullptr, 0, base::poll_milliseconds(clock, until));
  }
}

std::optional<Status> MeetingClient::ask(const Clock& clock, Instant deadline) {
  if (!reach(clock, deadline).ok()) return std::nullopt;
  Status said = answer(clock, deadline).status();
  if (said.code() == Code::kInvalidArgument) return said;
  return std::nullopt;
}

Result<MeetingClient::Parts> MeetingClient::answer(const Clock& clock, Instant deadline) {
  for (;;) {
    const auto frame = socket_->receive();
    if (!frame.ok()) return rank_0_gone("sent what cannot be read");
    if (!frame->has_value()) {
      if (socket_->closed()) return rank_0_gone("ended");
      if (clock.now() >= deadline) return roll_.absent({0});
      pollfd entry{socket_->fd(),
                   base::narrow<short>(socket_->backlogged() ? POLLIN | POLLOUT : POLLIN), 0};
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

std::optional<Status> ask_rank_0(const MeetingPlan& plan, const Clock& clock) {
  MeetingClient client(plan);
  return client.ask(clock, clock.after(kAskTime));
}

}  // namespace ronde::runtime
