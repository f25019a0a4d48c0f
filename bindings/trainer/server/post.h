// SPDX-License-Identifier: Apache-2.0
// Messages over ZeroMQ: a ROUTER where others connect, and a DEALER to each task that this one
// connects to. Floats are sent from where they lie and read where they arrive. A message travels in
// pieces, each a message of ZeroMQ's, whose marks count those whole: so they count bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings/trainer/fit/callbacks.h"
#include "bindings/trainer/server/encoding.h"
#include "bindings/trainer/server/keys.h"
#include "bindings/trainer/server/protocol.h"

namespace ronde::trainer::server {

struct PostOptions {
  Address self;
  Access access;
  Say say;
  // What may wait for one peer, besides what ZeroMQ has: so many messages, and those after
  // the first so many bytes. More is lost as on the way: whoever needs it asks again.
  std::size_t waiting = 16;
  std::size_t waiting_bytes = std::size_t{1} << 28U;
  // The bytes of a frame; and those of a message from this sender, until all of it has come.
  std::int64_t frame_bytes = std::int64_t{1} << 26;
  std::function<std::size_t(const Address& from)> most_bytes{};
};

// Thread safety: belongs to one thread, but for wake().
class Post {
 public:
  explicit Post(PostOptions options);
  Post(const Post&) = delete;
  Post& operator=(const Post&) = delete;
  ~Post();

  // "host:port" or "ipc://path", which name a socket in the folder, where there is one. Throws
  // TrainerError where it is taken.
  void listen(const std::string& address);
  void connect(const Address& to, const std::string& address);
  // To who is connected, or has connected; otherwise it is lost, as on the way.
  void send(const Message& message);
  // What has come, after waiting for it for at most so long. What is no message is a line.
  std::vector<Message> receive(double seconds);
  // Lets receive() return now. Any thread may call.
  void wake();

 private:
  struct Sockets;

  struct Outgoing;

  void pump();
  void read(void* socket, bool router, std::vector<Message>& out);
  bool take(const std::string& who, std::span<const Frame> frames, bool router,
            std::vector<Message>& out, std::string& why);
  void read_monitor();
  void complain(const std::string& what);

  const PostOptions options_;
  std::unique_ptr<Sockets> sockets_;
  std::uint64_t complaints_ = 0;
};

}  // namespace ronde::trainer::server
