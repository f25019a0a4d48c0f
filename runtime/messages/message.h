// SPDX-License-Identifier: Apache-2.0
// A message between two ranks: what a caller gives to send or receive it, and its text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/dtype.h"

namespace ronde::runtime {

// Thread safety: a value; the memory is the caller's until the work is done.
struct MessageRequest {
  static constexpr std::int32_t kAnyRank = -1;

  std::int32_t rank = 0;  // the other one; kAnyRank: to receive from whoever sends first
  std::int64_t tag = 0;
  base::DType dtype = base::DType::kU8;
  std::int64_t count = 0;       // elements
  std::byte* memory = nullptr;  // a sender's is only read
  std::int32_t device = -1;     // where the memory is; below 0: the host
  bool will_wait = false;       // the caller waits at once
  const char* file = nullptr;   // of the call; read during it only
  std::int32_t line = 0;
  base::Nanoseconds deadline{};  // 0: RONDE_STALL_FAILURE_SECONDS

  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(count * base::size_of(dtype));
  }
};

// "4 of f32".
[[nodiscard]] inline std::string elements_text(base::DType dtype, std::int64_t count) {
  return std::to_string(count) + " of " + std::string(base::name_of(dtype));
}

// "the message with tag 3 from rank 0 to rank 1".
[[nodiscard]] inline std::string message_text(std::int64_t tag, std::int32_t from,
                                              std::int32_t to) {
  const std::string sender =
      from == MessageRequest::kAnyRank ? "any rank" : "rank " + std::to_string(from);
  return "the message with tag " + std::to_string(tag) + " from " + sender + " to rank " +
         std::to_string(to);
}

}  // namespace ronde::runtime
