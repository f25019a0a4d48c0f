// SPDX-License-Identifier: Apache-2.0
// The calls of a plug-in's meeting.
#include "collectives/transport/plugin_meeting.h"

#include <algorithm>
#include <cstring>

namespace ronde::collectives {

using base::Clock;
using base::Instant;
using base::Result;

namespace {

std::int64_t patience(const Clock& clock, Instant deadline) {
  return std::max<std::int64_t>(0, (deadline - clock.now()).count());
}

}  // namespace

PluginMeeting::PluginMeeting(const TransportLibrary& library)
    : meeting_(*library.table().meeting), library_(library.library()) {
  info_.struct_size = sizeof info_;
}

Result<std::unique_ptr<PluginMeeting>> PluginMeeting::join(const TransportLibrary& library,
                                                           const ProgramCommunicator* communicator,
                                                           const Clock& clock, Instant deadline) {
  ronde_meeting_request request{};
  request.struct_size = sizeof request;
  if (communicator != nullptr) {
    request.family = static_cast<std::int32_t>(communicator->family);
    request.communicator = communicator->handle;
  }
  request.patience_ns = patience(clock, deadline);
  auto error = empty_transport_error();
  std::unique_ptr<PluginMeeting> meeting(new PluginMeeting(library));
  RONDE_RETURN_IF_ERROR(status_of(
      meeting->meeting_.join(&request, &meeting->party_, &meeting->info_, &error), error));
  return meeting;
}

std::vector<int> PluginMeeting::ranks_on_this_host() const {
  std::vector<int> ranks(static_cast<std::size_t>(info_.ranks_here));
  meeting_.ranks_here(party_, ranks.data());
  return ranks;
}

Result<std::vector<std::vector<std::byte>>> PluginMeeting::allgather(
    std::span<const std::byte> mine, const std::string& activity, const StartTrouble& trouble,
    const Clock& clock, Instant deadline) {
  ronde_meeting_round round{};
  round.struct_size = sizeof round;
  round.activity = activity.c_str();
  round.trouble = trouble.text.c_str();
  round.trouble_rank = trouble.culprit;
  round.patience_ns = patience(clock, deadline);
  std::vector<std::vector<std::byte>> all(static_cast<std::size_t>(info_.size));
  const auto take = [](void* context, std::int32_t rank, const void* bytes, std::size_t length) {
    auto& parts = *static_cast<std::vector<std::vector<std::byte>>*>(context);
    const auto* const first = static_cast<const std::byte*>(bytes);
    parts.at(static_cast<std::size_t>(rank)).assign(first, first + length);
  };
  auto error = empty_transport_error();
  RONDE_RETURN_IF_ERROR(status_of(
      meeting_.allgather(party_, &round, mine.data(), mine.size(), take, &all, &error), error));
  return all;
}

std::string PluginMeeting::bound_to_thread() const {
  if (info_.any_thread != 0) return "";
  return {info_.threads, ::strnlen(info_.threads, sizeof info_.threads)};
}

base::Status PluginMeeting::close() {
  auto error = empty_transport_error();
  return status_of(meeting_.leave(party_, &error), error);
}

}  // namespace ronde::collectives
