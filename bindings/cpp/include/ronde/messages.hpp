// SPDX-License-Identifier: Apache-2.0
// How spans become messages between two ranks. Included by ronde.hpp.
#pragma once

#include <ronde/ronde.h>

#include <cstdint>
#include <ronde/range.hpp>
#include <ronde/requests.hpp>
#include <source_location>

namespace ronde::detail {

// Of the C ABI; the memory is the caller's. Thread safety: a value.
inline ronde_message message_of(int rank, std::int64_t tag, const Memory& memory,
                                const std::source_location& where) {
  ronde_message message;
  ronde_message_init(&message);
  message.rank = rank;
  message.tag = tag;
  message.data = memory.data;
  message.count = static_cast<std::int64_t>(memory.count);
  message.dtype = memory.dtype;
  message.device = memory.device;
  message.file = where.file_name();
  message.line = static_cast<std::int32_t>(where.line());
  return message;
}

}  // namespace ronde::detail
