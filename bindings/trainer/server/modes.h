// SPDX-License-Identifier: Apache-2.0
// When servers apply what workers push: protocol.h says what each mode does.
#pragma once

#include <cstdint>
#include <string>

namespace ronde::trainer::server {

enum class Mode : std::uint8_t { kSync, kAsync, kStale };

struct ModeOptions {
  Mode mode = Mode::kAsync;
  std::uint64_t bound = 0;           // k of stale
  std::uint32_t backup_workers = 0;  // of sync
  bool scale_by_staleness = false;   // the rate is divided by 1 + staleness
};

// "sync", "async" or "stale=k". Throws TrainerError.
[[nodiscard]] ModeOptions mode_of(const std::string& text);
[[nodiscard]] std::string text_of(const ModeOptions& mode);

}  // namespace ronde::trainer::server
