// SPDX-License-Identifier: Apache-2.0
// A Status on its way through the C table of a transport: libronde.so reads what a plug-in that is
// written in C++ with this header has written.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
#include <source_location>
#include <string>
#include <utility>

#include "base/status.h"
#include "collectives/transport/plugin.h"

namespace ronde::collectives {

// Codes that are not here become RONDE_TRANSPORT_FAILED, and that kTransport.
inline constexpr std::array<std::pair<ronde_transport_status, base::Code>, 8> kTransportCodes{{
    {RONDE_TRANSPORT_FAILED, base::Code::kTransport},
    {RONDE_TRANSPORT_UNAVAILABLE, base::Code::kUnsupported},
    {RONDE_TRANSPORT_INVALID, base::Code::kInvalidArgument},
    {RONDE_TRANSPORT_PEER_FAILED, base::Code::kPeerFailed},
    {RONDE_TRANSPORT_DEADLINE, base::Code::kDeadline},
    {RONDE_TRANSPORT_CLOSED, base::Code::kClosed},
    {RONDE_TRANSPORT_NO_MEMORY, base::Code::kOutOfMemory},
    {RONDE_TRANSPORT_SYSTEM, base::Code::kSystem},
}};

// An error to hand to a plug-in.
[[nodiscard]] inline ronde_transport_error empty_transport_error() {
  ronde_transport_error error{};
  error.struct_size = sizeof error;
  error.rank = -1;
  return error;
}

// What a plug-in has answered; PENDING counts as success.
[[nodiscard]] inline base::Status status_of(
    ronde_transport_status answer, const ronde_transport_error& error,
    std::source_location where = std::source_location::current()) {
  if (answer == RONDE_TRANSPORT_OK || answer == RONDE_TRANSPORT_PENDING) return {};
  const auto* const code = std::find_if(kTransportCodes.begin(), kTransportCodes.end(),
                                        [&](const auto& one) { return one.first == answer; });
  std::string text(error.text, ::strnlen(error.text, sizeof error.text));
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.empty()) text = "the transport gives no reason";
  auto status = base::Status::error(
      code != kTransportCodes.end() ? code->second : base::Code::kTransport, text, where);
  return error.rank >= 0 ? status.with_rank(error.rank) : status;
}

// The answer of a plug-in.
inline ronde_transport_status answer_of(const base::Status& status, ronde_transport_error* error) {
  if (status.ok()) return RONDE_TRANSPORT_OK;
  const std::string text = status.message();
  const std::size_t length = std::min(text.size(), sizeof error->text - 1);
  std::memcpy(error->text, text.data(), length);
  error->text[length] = '\0';
  error->rank = status.rank().value_or(-1);
  const auto* const code =
      std::find_if(kTransportCodes.begin(), kTransportCodes.end(),
                   [&](const auto& one) { return one.second == status.code(); });
  return code != kTransportCodes.end() ? code->first : RONDE_TRANSPORT_FAILED;
}

inline ronde_transport_status answer_of(const base::Result<bool>& done,
                                        ronde_transport_error* error) {
  if (!done.ok()) return answer_of(done.status(), error);
  return *done ? RONDE_TRANSPORT_OK : RONDE_TRANSPORT_PENDING;
}

// Calls `call`, which returns a status of the table. Nothing may be thrown through it. Inlined,
// since each message comes through here three times.
template <typename Call>
[[gnu::always_inline]] inline ronde_transport_status guarded(ronde_transport_error* error,
                                                             Call&& call) noexcept {
  try {
    return std::forward<Call>(call)();
  } catch (const std::exception& thrown) {
    // Only a lack of memory throws, so nothing is allocated here.
    error->rank = -1;
    std::strncpy(error->text, thrown.what(), sizeof error->text - 1);
    return RONDE_TRANSPORT_NO_MEMORY;
  }
}

}  // namespace ronde::collectives
