// SPDX-License-Identifier: Apache-2.0
#include "runtime/messages/peer_copy.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "base/numbers.h"
#include "runtime/messages/peer_protocol.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

PeerCopy::PeerCopy(const collectives::Board& board, const std::string& setting)
    : board_(board),
      slots_(setting == "slots"),
      kernel_(setting == "copy"),
      ways_(base::narrow<std::size_t>(board.ranks()), Way::kUnknown),
      choices_(ways_.size()) {}

PeerCopy::Way PeerCopy::way_to(std::int32_t from, bool in_arena, std::size_t bytes) {
  if (in_arena) return Way::kArena;
  const auto position = base::narrow<std::size_t>(from);
  Way& way = ways_[position];
  if (way == Way::kUnknown) way = find_way_to(from);
  if (way != Way::kProcess || kernel_) return way;
  return choices_[position].next_by_kernel(bytes) ? way : Way::kNone;
}

void PeerCopy::took(std::int32_t from, Way way, std::size_t bytes, base::Nanoseconds time) {
  if (way != Way::kProcess && way != Way::kNone) return;
  choices_[base::narrow<std::size_t>(from)].took(bytes, way == Way::kProcess, time);
}

namespace {

// An address that the sender has written on the board.
void* pointer_to(std::uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): it was one there
}

}  // namespace

// A pid means another process where ranks are in different containers, but then that one has not
// begun at the same time.
PeerCopy::Way PeerCopy::find_way_to(std::int32_t from) const {
  const collectives::Presence presence = board_.presence(from);
  if (slots_) return Way::kNone;
  if (presence.pid == ::getpid()) return Way::kMemory;
  const auto begun = collectives::process_start_time(presence.pid);
  const bool same = begun.ok() && presence.start_time != 0 && *begun == presence.start_time;
  return same ? Way::kProcess : Way::kNone;
}

Result<Copied> PeerCopy::copy(const Place& place, ChannelWords& channel, std::byte* to,
                              std::size_t bytes) const {
  PeerWords words(board_, place.from, channel);
  if (place.way == Way::kMemory) {
    const auto copy = [&] { std::memcpy(to, pointer_to(place.address), bytes); };
    return PeerProtocol(words).read(copy) ? Copied::kAll : Copied::kTakenBack;
  }
  bool copied = true;
  if (place.way == Way::kArena) {
    const std::span<std::byte> arena = board_.arena(place.from);
    if (place.address > arena.size() || bytes > arena.size() - place.address) {
      return Status::error(Code::kInternal, "a message lies outside of its sender's arena");
    }
    std::memcpy(to, arena.data() + place.address, bytes);
  } else {
    copied = read_process(place, to, bytes);
  }
  if (words.revoked()) return Copied::kTakenBack;
  return copied ? Copied::kAll : Copied::kNot;
}

// False where this process may not read that one, or cannot any more.
bool PeerCopy::read_process(const Place& place, std::byte* to, std::size_t bytes) const {
  const pid_t pid = board_.presence(place.from).pid;
  std::size_t done = 0;
  while (done < bytes) {
    const iovec here{to + done, bytes - done};
    const iovec there{pointer_to(place.address + done), bytes - done};
    const ssize_t read = ::process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (read > 0) {
      done += static_cast<std::size_t>(read);
    } else if (read == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace ronde::runtime
