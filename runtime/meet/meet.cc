// SPDX-License-Identifier: Apache-2.0
// Which end of the meeting a rank is, and what both ends share.
#include "runtime/meet/meet.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/host_name.h"
#include "base/numbers.h"
#include "base/words/secret_file.h"

namespace ronde::runtime {

using base::Code;
using base::Nanoseconds;
using base::Status;

base::Result<std::unique_ptr<collectives::Meeting>> meet(const MeetingPlan& plan,
                                                         const base::Clock& clock,
                                                         base::Instant deadline) {
  if (!plan.point.on_host() && !plan.secret.given()) {
    return Status::error(Code::kInvalidArgument,
                         "the ranks would meet over the network, at " + text_of(plan) +
                             ", without a secret, so that anybody could take part; " +
                             base::kSecretAdvice +
                             ". (Ranks of one host alone need none at RONDE_MEET=localhost:" +
                             std::to_string(plan.point.port) + ")");
  }
  return plan.rank == 0 ? meet_as_rank_0(plan, clock, deadline)
                        : meet_rank_0(plan, clock, deadline);
}

std::string text_of(const MeetingPlan& plan) {
  return text_of(plan.point) + (plan.launcher.empty() ? "" : " (" + plan.launcher + ")");
}

Nanoseconds patience_of(Nanoseconds left) {
  // On a machine that is too busy rank 0 may get no core for some of it.
  constexpr Nanoseconds kMost = std::chrono::seconds(2);
  return std::max(left - std::min(left / 3, kMost), Nanoseconds(0));
}

std::string text_of_rank(const MeetingHello& hello) {
  return "rank " + std::to_string(hello.rank) + " (host " + hello.host_name + ", pid " +
         std::to_string(hello.pid) + ")";
}

MeetingEnd::MeetingEnd(MeetingPlan plan)
    : plan_(std::move(plan)), hellos_(base::narrow<std::size_t>(plan_.size)), roll_(plan_.size) {
  MeetingHello& own = hellos_[base::narrow<std::size_t>(plan_.rank)];
  own.rank = plan_.rank;
  own.size = plan_.size;
  own.job = plan_.job;
  own.host_name = base::host_name();
  own.host_identity = base::host_identity();
  own.pid = ::getpid();
}

const MeetingHello& MeetingEnd::hello_of(std::int32_t rank) const {
  return hellos_[base::narrow<std::size_t>(rank)];
}

std::vector<int> MeetingEnd::ranks_on_this_host() const {
  std::vector<int> ranks;
  for (const MeetingHello& hello : hellos_) {
    if (hello.host_identity == own_hello().host_identity) ranks.push_back(hello.rank);
  }
  return ranks;
}

Status MeetingEnd::close() {
  leave();
  return {};
}

void MeetingEnd::begin_round(const std::string& activity) {
  activity_ = activity;
  roll_.begin_round(activity);
}

void MeetingEnd::record(std::int32_t rank, base::Instant now) {
  roll_.record(rank, hello_of(rank).host_name, plan_.point.one_host ? plan_.size : 0, now);
}

void MeetingEnd::open_round(MeetingPart mine, base::Instant now) {
  parts_.clear();
  parts_.resize(hellos_.size());
  answer_by_ = base::Instant::max();
  take_part(0, std::move(mine), now, now);
}

void MeetingEnd::take_part(std::int32_t rank, MeetingPart part, base::Instant since,
                           base::Instant now) {
  answer_by_ = std::min(answer_by_, since + part.patience);
  record(rank, now);
  parts_[base::narrow<std::size_t>(rank)] = std::move(part);
}

bool MeetingEnd::has_part(std::int32_t rank) const {
  return parts_[base::narrow<std::size_t>(rank)].has_value();
}

bool MeetingEnd::complete() const {
  return std::ranges::all_of(parts_, [](const auto& part) { return part.has_value(); });
}

Status MeetingEnd::too_late() const {
  std::vector<collectives::StartTrouble> troubles;
  for (const auto& part : parts_) {
    if (part && !part->trouble.text.empty()) troubles.push_back(part->trouble);
  }
  if (const auto* cause = collectives::root_cause(troubles)) return cause->status();
  return roll_.absent(roll_.missing(base::Instant::min()));
}

MeetingEnd::Parts MeetingEnd::take_parts() {
  Parts all;
  all.reserve(parts_.size());
  for (auto& part : parts_) {
    all.push_back(part ? std::move(part->bytes) : std::vector<std::byte>());
  }
  return all;
}

Status MeetingEnd::check(const MeetingHello& hello) const {
  if (hello.size != plan_.size) {
    return Status::error(Code::kInvalidArgument,
                         text_of_rank(hello) + " was told that the job has " +
                             std::to_string(hello.size) + " ranks, and " +
                             text_of_rank(own_hello()) + " that it has " +
                             std::to_string(plan_.size) +
                             ": give all the same size (RONDE_SIZE, or the engine's option)")
        .with_rank(hello.rank);
  }
  if (hello.rank >= 0 && hello.rank < plan_.size) return {};
  return Status::error(Code::kInvalidArgument, text_of_rank(hello) + " is no rank of a job of " +
                                                   std::to_string(plan_.size));
}

Status MeetingEnd::take_hellos(const Parts& parts) {
  for (std::size_t rank = 0; rank < hellos_.size(); ++rank) {
    RONDE_ASSIGN_OR_RETURN(const auto message, decode_meeting_message(parts[rank]));
    const auto* const hello = std::get_if<MeetingHello>(&message);
    if (hello == nullptr) {
      return Status::error(Code::kInternal, "rank " + std::to_string(rank) + " has sent no hello");
    }
    RONDE_RETURN_IF_ERROR(check(*hello));
    if (hello->rank != base::narrow<std::int32_t>(rank)) {
      return Status::error(Code::kInvalidArgument,
                           text_of_rank(*hello) + " came in the place of rank " +
                               std::to_string(rank) + ": give each a rank of its own (RONDE_RANK)")
          .with_rank(hello->rank);
    }
    hellos_[rank] = *hello;
  }
  std::vector<std::string> names;
  names.reserve(hellos_.size());
  for (const MeetingHello& hello : hellos_) names.push_back(hello.host_name);
  roll_.set_hosts(names);
  return {};
}

}  // namespace ronde::runtime
