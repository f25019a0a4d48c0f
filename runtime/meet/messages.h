// SPDX-License-Identifier: Apache-2.0
// The messages of a meeting, once both ends have proved that they know the secret. Plain values and
// pure functions; each message is one frame of a FrameSocket.
//
//   rank                      rank 0
//   hello             ->      collects all ranks
//                     <-      all: where each rank runs
//   part of a round   ->      collects all parts       (as often as the start needs it)
//                     <-      all: every rank's bytes
// Instead of an "all" rank 0 may send a verdict: why the start fails, which is then the error of
// every rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/transport/roll.h"

namespace ronde::runtime {

inline constexpr std::uint32_t kMeetingVersion = 3;

struct MeetingHello {
  std::uint32_t version = kMeetingVersion;
  std::int32_t rank = -1;
  std::int32_t size = 0;
  base::Nanoseconds patience{};  // how long this rank waits for an answer
  std::string host_name;
  std::string host_identity;
  std::int64_t pid = 0;
  std::string job{};

  friend bool operator==(const MeetingHello&, const MeetingHello&) = default;
};

struct MeetingPart {
  std::uint32_t round = 0;
  base::Nanoseconds patience{};
  collectives::StartTrouble trouble;
  std::vector<std::byte> bytes;
};

struct MeetingAll {
  std::uint32_t round = 0;
  std::vector<std::vector<std::byte>> parts;  // by rank
};

struct MeetingVerdict {
  base::Code code = base::Code::kInternal;
  std::int32_t culprit = -1;
  std::string text;

  [[nodiscard]] static MeetingVerdict of(const base::Status& status);
  [[nodiscard]] base::Status status() const;
};

// What rank 0 puts into a store for the others, where it cannot talk to each. The bytes of the
// ranks go with a verdict, too: by its own a rank sees that the answer is one to it, and not an
// older engine's.
struct MeetingAnswer {
  MeetingAll all;
  std::optional<MeetingVerdict> verdict;
};

using MeetingMessage =
    std::variant<MeetingHello, MeetingPart, MeetingAll, MeetingVerdict, MeetingAnswer>;

[[nodiscard]] std::vector<std::byte> encode(const MeetingMessage& message);
// An error (kInternal) where the bytes are no message of this version.
base::Result<MeetingMessage> decode_meeting_message(std::span<const std::byte> bytes);

}  // namespace ronde::runtime
