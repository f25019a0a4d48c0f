// SPDX-License-Identifier: Apache-2.0
// Messages over ZeroMQ: a ROUTER for tasks that connect to this one, and a DEALER to each task that
// this one connects to. Floats are sent from their memory and read from the received frames. A
// message is cut into pieces, each a ZeroMQ message: ZeroMQ limits its queues by a number of
// messages, and with pieces of bounded size that limits bytes.
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

struct MessageSocketOptions {
  Address self;
  Access access;
  PrintLine say;
  // How much may wait here for one peer, before ZeroMQ's queue: so many messages, and so many bytes
  // after the first. send() drops more than that: a task repeats an unanswered request.
  std::size_t waiting = 16;
  std::size_t waiting_bytes = std::size_t{1} << 28U;
  // The most bytes of a frame, and of a message from this sender.
  std::int64_t frame_bytes = std::int64_t{1} << 26;
  std::function<std::size_t(const Address& from)> most_bytes{};
};

// Thread safety: belongs to one thread, except wake().
class MessageSocket {
 public:
  explicit MessageSocket(MessageSocketOptions options);
  MessageSocket(const MessageSocket&) = delete;
  MessageSocket& operator=(const MessageSocket&) = delete;
  ~MessageSocket();

  // An address is "host:port" or "ipc://path"; with a folder it names a Unix socket there. Throws
  // TrainerError if another process has it.
  void listen(const std::string& address);
  void connect(const Address& to, const std::string& address);
  // Drops the message if its receiver is not connected.
  void send(const Message& message);
  // The messages that have come, after waiting for one for at most `seconds`. Reports anything that
  // is no message in a line.
  std::vector<Message> receive(double seconds);
  // Makes receive() return now. Any thread may call it.
  void wake();

 private:
  struct Sockets;

  struct Outgoing;

  void pump();
  void read(void* socket, bool router, std::vector<Message>& out);
  bool take(const std::string& sender, std::span<const Frame> frames, bool router,
            std::vector<Message>& out, std::string& why);
  void read_monitor();
  void complain(const std::string& what);

  const MessageSocketOptions options_;
  std::unique_ptr<Sockets> sockets_;
  std::uint64_t complaints_ = 0;
};

}  // namespace ronde::trainer::server
