// SPDX-License-Identifier: Apache-2.0
// What a worker or the chief asks servers, with a thread of its own that keeps the connections, so
// that a step that takes long is not taken for a death.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bindings/trainer/fit/callbacks.h"
#include "bindings/trainer/server/keys.h"
#include "bindings/trainer/server/protocol.h"

namespace ronde::trainer::server {

struct ClientOptions {
  WorkerOptions state;
  std::vector<std::string> servers;
  Access access;
  // The chief: what creates the variables of a group that has none, at first or after its server
  // was started again. Empty: the client waits for the chief.
  std::function<Message(std::uint32_t group)> create;
  double deadline = 60.0;   // seconds that a server may be silent or without variables
  double patience = 600.0;  // for an answer of a server that is there (sync: for the others)
  Say say;
};

// Thread safety: belongs to one thread.
class Client {
 public:
  explicit Client(ClientOptions options);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  // Begins a request to a group; finish() waits for its answer. Throws TrainerError where a server
  // refuses, or does not answer before the deadline.
  void start(Message message);
  Message finish(std::uint32_t group);
  Message ask(Message message);
  // The same, but it gives up after so long, and returns nothing.
  std::optional<Message> try_ask(Message message, double seconds);

  // The chief has closed the job.
  [[nodiscard]] bool closed();

  // Bytes of floats sent and received.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  void run(const std::stop_token& stop);
  void begin(const Message& message);
  // How a wait for an answer stands.
  struct Wait {
    double since;
    double trouble_since;  // the server was silent, or without variables, ever since
    bool said = false;
  };
  bool look(std::uint32_t group, Wait& wait);
  [[nodiscard]] bool must_create(std::uint32_t group) const;

  const ClientOptions options_;
  std::mutex mutex_;
  std::condition_variable answered_;
  WorkerState state_;
  Messages outbox_;
  std::string failure_;            // of the thread
  std::vector<Message> requests_;  // by group, as they were asked
  std::uint64_t bytes_ = 0;
  std::unique_ptr<class Post> post_;
  std::jthread thread_;
};

}  // namespace ronde::trainer::server
