// SPDX-License-Identifier: Apache-2.0
// Copying once from memory of another rank of the host: from its arena or, in the same process, as
// memory; from another process with process_vm_readv, where the kernel allows it (the same user,
// and kernel.yama.ptrace_scope = 0 or CAP_SYS_PTRACE).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "collectives/board/board.h"
#include "runtime/messages/channel.h"

namespace ronde::runtime {

enum class Copied : std::uint8_t {
  kAll,
  kTakenBack,  // the sender has taken the memory back
  kNot         // this process may not: the sender must send the bytes
};

// Thread safety: one thread at a time.
class PeerCopy {
 public:
  // `slots`: nothing but arenas is read, as a setting wants.
  PeerCopy(const collectives::Board& board, bool slots);

  // Where the bytes of an offer lie.
  struct Place {
    std::int32_t from = 0;  // position of the sender
    bool in_arena = false;
    std::uint64_t address = 0;
  };
  // An error where the arena has no such place, or a call of the system fails.
  base::Result<Copied> copy(const Place& place, ChannelWords& words, std::byte* to,
                            std::size_t bytes);

 private:
  enum class Way : std::uint8_t { kUnknown, kMemory, kProcess, kNone };
  [[nodiscard]] Way way_to(std::int32_t from);
  [[nodiscard]] base::Result<bool> read_process(const Place& place, std::byte* to,
                                                std::size_t bytes);

  const collectives::Board& board_;
  const bool slots_;
  std::vector<Way> ways_;  // by position
};

}  // namespace ronde::runtime
