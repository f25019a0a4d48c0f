// SPDX-License-Identifier: Apache-2.0
// Messages over ZeroMQ: a ROUTER where others connect, and a DEALER to each task that this one
// connects to. Floats are sent from where they lie and read where they arrive.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/trainer/loop/callbacks.h"
#include "bindings/trainer/server/keys.h"
#include "bindings/trainer/server/protocol.h"

namespace ronde::trainer::server {

struct PostOptions {
  Address self;
  Access access;
  Say say;
  // Messages to one peer that may wait: with the number of peers they bound what is kept for those
  // who do not read. Who lets more wait is dropped with a line. And the bytes of a frame, of which
  // a message has as many as its floats need.
  int waiting = 16;
  std::int64_t frame_bytes = std::int64_t{1} << 26;
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

  void read(void* socket, bool router, std::vector<Message>& out);
  void read_monitor();
  void complain(const std::string& what);

  const PostOptions options_;
  std::unique_ptr<Sockets> sockets_;
  std::uint64_t complaints_ = 0;
};

}  // namespace ronde::trainer::server
