// SPDX-License-Identifier: Apache-2.0
// What a start begins with: ranks that have met.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/transport/meeting.h"
#include "collectives/transport/plugin.h"
#include "collectives/transport/transport_library.h"

namespace ronde::runtime {

// How the ranks have met. Thread safety: a value.
struct Met {
  std::unique_ptr<collectives::Meeting> meeting;
  // The plug-in whose meeting that is, and its part of it; nothing if Ronde introduced the ranks.
  std::optional<collectives::TransportLibrary> plugin;
  ronde_meeting_party* party = nullptr;
  // By which ranks have proved that they belong to the job; empty where MPI introduced them.
  std::vector<std::byte> secret{};
};

}  // namespace ronde::runtime
