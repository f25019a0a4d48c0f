// SPDX-License-Identifier: Apache-2.0
// Which end of the meeting a rank is, and what both ends share.
#include "runtime/meet/meet.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/host_name.h"
#include "base/numbers.h"
#include "collectives/board/host_identity.h"

namespace ronde::runtime {

using base::Code;
using base::Nanoseconds;
using base::Result;
using base::Status;

Result<std::unique_ptr<collectives::Meeting>> meet(const MeetingPlan& plan,
                                                   const base::Clock& clock,
                                                   base::Instant deadline) {
  if (!plan.point.one_host && !plan.secret.given()) {
    return Status::error(Code::kInvalidArgument,
                         "the ranks would meet over the network, at " + text_of(plan) +
                             ", without a secret, so that anybody could take part; " +
                             kSecretAdvice +
                             ". (Ranks of one host alone need none at RONDE_MEET=localhost:" +
                             std::to_string(plan.point.port) + ")");
  }
  return plan.rank == 0 ? meet_as_rank_0(plan, clock, deadline)
                        : meet_rank_0(plan, clock, deadline);
}

std::string text_of(const MeetingPlan& plan) {
  return text_of(plan.point) + (plan.launcher.empty() ? "" : " (" + plan.launcher + ")");
}

MeetingHello hello_of(const MeetingPlan& plan) {
  MeetingHello hello;
  hello.rank = plan.rank;
  hello.size = plan.size;
  hello.host_name = base::host_name();
  hello.host_identity = collectives::host_identity();
  hello.pid = ::getpid();
  return hello;
}

Nanoseconds patience_of(Nanoseconds left) {
  constexpr Nanoseconds kMost = std::chrono::seconds(2);
  return std::max(left - std::min(left / 10, kMost), Nanoseconds(0));
}

std::vector<int> ranks_on_host_of(std::span<const MeetingHello> hellos, std::int32_t rank) {
  std::vector<int> ranks;
  const std::string& here = hellos[base::narrow<std::size_t>(rank)].host_identity;
  for (const MeetingHello& hello : hellos) {
    if (hello.host_identity == here) ranks.push_back(hello.rank);
  }
  return ranks;
}

std::vector<std::string> host_names_of(std::span<const MeetingHello> hellos) {
  std::vector<std::string> names;
  names.reserve(hellos.size());
  for (const MeetingHello& hello : hellos) names.push_back(hello.host_name);
  return names;
}

int poll_milliseconds(const base::Clock& clock, base::Instant deadline) {
  constexpr std::int64_t kSliceMs = 20;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock.now()).count();
  return base::narrow<int>(std::clamp<std::int64_t>(left, 0, kSliceMs));
}

}  // namespace ronde::runtime
