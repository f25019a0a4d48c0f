// SPDX-License-Identifier: Apache-2.0
// A task's connection to the servers. A thread of its own sends signs of life, so that a task whose
// step takes long is not taken for dead.
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
#include "bindings/trainer/fit/own_time.h"
#include "bindings/trainer/server/keys.h"
#include "bindings/trainer/server/protocol.h"

namespace ronde::trainer::server {

struct ClientOptions {
  WorkerOptions state;
  std::vector<std::string> servers;
  Access access;
  // On the chief: makes the kCreate of a group without variables, at first or after its server was
  // started again. Empty: the client waits for the chief.
  std::function<Message(std::uint32_t group)> create;
  double deadline = 60.0;   // seconds that a server may be silent or without variables
  double patience = 600.0;  // seconds that a server may take to answer (in sync: other workers)
  PrintLine say;
};

// Thread safety: belongs to one thread.
class Client {
 public:
  explicit Client(ClientOptions options);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  // Begins a request to a group; finish() waits for its answer. Throws TrainerError if the server
  // refuses it, or does not answer before the deadline.
  void start(Message message);
  Message finish(std::uint32_t group);
  Message ask(Message message);
  // The same, but returns nothing after so many seconds without an answer.
  std::optional<Message> try_ask(Message message, double seconds);
  // Sends a message to all groups; returns the first group that did not answer within `seconds`.
  std::optional<std::uint32_t> tell_all(const Message& message, double seconds);

  // The chief has closed the job. Throws TrainerError if it has ended with an error.
  [[nodiscard]] bool closed();
  // In the time in which it has listened.
  [[nodiscard]] double now();

  // Bytes of floats sent and received.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  void run(const std::stop_token& stop);
  void begin(const Message& message);
  struct Wait {
    double since;
    double trouble_since;  // from then on the server was silent, or without variables
    bool said = false;
  };
  bool wait_a_while(std::uint32_t group, Wait& wait);
  std::optional<Message> wait_until(std::uint32_t group, double end);
  [[nodiscard]] bool must_create(std::uint32_t group) const;
  bool forget_if_empty(std::uint32_t group);

  const ClientOptions options_;
  std::mutex mutex_;
  std::condition_variable answered_;
  WorkerState state_;
  OwnTime time_;  // of this task, in which all is counted
  Messages outbox_;
  std::string failure_;            // of the thread
  std::vector<Message> requests_;  // by group: the one under way
  std::uint64_t bytes_ = 0;
  std::unique_ptr<class MessageSocket> socket_;
  std::jthread thread_;
};

}  // namespace ronde::trainer::server
