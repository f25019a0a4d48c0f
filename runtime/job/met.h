// SPDX-License-Identifier: Apache-2.0
// What a start begins with: ranks that have met.
#pragma once

#include <memory>
#include <optional>

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
};

}  // namespace ronde::runtime
