// SPDX-License-Identifier: Apache-2.0
// Copying once from memory of another rank of the host: from its arena or, in the same process, as
// memory; from another process with process_vm_readv, where the kernel allows it (the same user,
// and kernel.yama.ptrace_scope = 0 or CAP_SYS_PTRACE) and that is faster than through the board, or
// a setting wants it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/board/board.h"
#include "runtime/messages/channel.h"
#include "runtime/messages/way_choice.h"

namespace ronde::runtime {

enum class Copied : std::uint8_t {
  kAll,
  kTakenBack,  // the sender has taken the memory back
  kNot         // this process may not, or not any more: the sender must send the bytes
};

// Thread safety: copy() from any thread; the rest one thread at a time.
class PeerCopy {
 public:
  // How what lies outside of arenas is copied.
  enum class Way : std::uint8_t { kUnknown, kArena, kMemory, kProcess, kNone };

  // `setting`: of RONDE_MESSAGES.
  PeerCopy(const collectives::Board& board, const std::string& setting);

  // For a message of so many bytes.
  [[nodiscard]] Way way_to(std::int32_t from, bool in_arena, std::size_t bytes);
  // So long it took that way until the message was here: way_to() goes by it.
  void took(std::int32_t from, Way way, std::size_t bytes, base::Nanoseconds time);
  // The kernel does not let this process read that one.
  void forbid(std::int32_t from) { ways_[static_cast<std::size_t>(from)] = Way::kNone; }

  // Where the bytes of an offer lie.
  struct Place {
    std::int32_t from = 0;  // position of the sender
    Way way = Way::kNone;   // not kNone or kUnknown
    std::uint64_t address = 0;
  };
  // An error where the arena has no such place.
  base::Result<Copied> copy(const Place& place, ChannelWords& words, std::byte* to,
                            std::size_t bytes) const;

 private:
  [[nodiscard]] Way find_way_to(std::int32_t from) const;
  [[nodiscard]] bool read_process(const Place& place, std::byte* to, std::size_t bytes) const;

  const collectives::Board& board_;
  const bool slots_;                // nothing but arenas is read
  const bool kernel_;               // wherever it may
  std::vector<Way> ways_;           // by position
  std::vector<WayChoice> choices_;  // likewise, where the kernel may
};

}  // namespace ronde::runtime
