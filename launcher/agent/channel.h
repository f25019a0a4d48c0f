// SPDX-License-Identifier: Apache-2.0
// The messages between ronderun and an agent: frames over whatever carries bytes there and back, a
// socket here, the standard input and output of ssh or srun elsewhere.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/process/file_descriptor.h"
#include "base/status.h"
#include "base/wire/frame_socket.h"

namespace ronde::launcher {

// Owns its descriptors, which it makes non-blocking; no function blocks. SIGPIPE is ignored where
// one is used.
//
// Thread safety: none; for programs of one thread.
class Channel {
 public:
  Channel(base::FileDescriptor in, base::FileDescriptor out);
  // Two ends in one process, of which one is for a child.
  struct Pair;
  static base::Result<Pair> make_pair();

  [[nodiscard]] int in() const { return in_.get(); }
  [[nodiscard]] int out() const { return out_.get(); }

  // Queues a frame and writes what finds room.
  void send(std::span<const std::byte> frame);
  // Whether it could write any.
  bool flush();
  [[nodiscard]] bool backlogged() const { return !pending_.empty() && !closed_; }
  // Reads what has arrived; frames are then taken until there is none.
  void read();
  base::Result<std::optional<std::span<const std::byte>>> next() { return reader_.next(); }
  // The other end has gone, and all that it has said has been read. What has arrived can still be
  // taken.
  [[nodiscard]] bool closed() const { return closed_; }

  // Bytes before the first frame that are no frames: what a login prints. True: the mark has been
  // found, and frames follow; what came before it is added to `noise`.
  bool skip_to(std::string_view mark, std::string& noise);

 private:
  base::FileDescriptor in_;
  base::FileDescriptor out_;
  base::FrameReader reader_;
  std::string before_;  // the mark, once it is looked for
  std::string pending_;
  std::size_t written_ = 0;  // of pending_
  bool deaf_ = false;  // the other end takes no more; what it has said before is still to be read
  bool closed_ = false;
};

struct Channel::Pair {
  base::FileDescriptor ours;
  base::FileDescriptor theirs;  // for the child, which it survives an exec in
};

}  // namespace ronde::launcher
