// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/client.h"

#include <chrono>
#include <cstdlib>
#include <memory>
#include <utility>

#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/server/post.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {

Client::Client(ClientOptions options)
    : options_(std::move(options)), state_(options_.state), requests_(options_.servers.size()) {
  post_ = std::make_unique<Post>(
      PostOptions{.self = options_.state.self, .access = options_.access, .say = options_.say});
  for (std::uint32_t i = 0; i < options_.servers.size(); ++i) {
    post_->connect({Role::kServer, i, 0}, options_.servers[i]);
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Client::~Client() {
  thread_.request_stop();
  post_->wake();
  thread_.join();
}

void Client::run(const std::stop_token& stop) {
  try {
    double tick = 0.0;
    while (!stop.stop_requested()) {
      const auto messages = post_->receive(0.05);
      Messages out;
      {
        const std::lock_guard lock(mutex_);
        const double now = steady_seconds();
        out = std::exchange(outbox_, {});
        for (const Message& one : messages) {
          for (Message& answer : state_.on_message(now, one)) out.push_back(std::move(answer));
        }
        if (now - tick >= 0.05) {
          tick = now;
          for (Message& one : state_.on_tick(now)) out.push_back(std::move(one));
        }
      }
      if (!messages.empty()) answered_.notify_all();
      for (const Message& one : out) post_->send(one);
    }
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    failure_ = error.what();
    answered_.notify_all();
  }
}

void Client::begin(const Message& message) {
  {
    const std::lock_guard lock(mutex_);
    state_.request(steady_seconds(), message, outbox_);
  }
  post_->wake();
}

void Client::start(Message message) {
  bytes_ += bytes_of(message.floats);
  begin(message);
  requests_[message.group] = std::move(message);
}

// Who asks for counts wants to know whether there are variables.
bool Client::must_create(std::uint32_t group) const {
  return options_.create && state_.is_empty(group) && requests_[group].kind != Kind::kStatus;
}

// Waits for a while; whether the answer is there. Throws at the deadlines.
bool Client::look(std::uint32_t group, Wait& wait) {
  std::unique_lock lock(mutex_);
  answered_.wait_for(lock, std::chrono::milliseconds(50), [&] {
    return !state_.is_under_way(group) || !failure_.empty() || must_create(group);
  });
  if (!failure_.empty()) throw TrainerError(failure_);
  if (!state_.is_under_way(group)) return true;
  if (state_.closed()) {
    throw TrainerError("the chief has closed the job, while " + text_of(options_.state.self) +
                           " was not heard: it ends",
                       EXIT_SUCCESS);
  }
  const auto home = state_.home(group);
  const double now = steady_seconds();
  const std::uint32_t server = home.value_or(group);
  const bool is_silent = !home || now - state_.heard(server) > 2.0;
  const bool is_empty = state_.is_empty(group);
  if (!is_silent && !is_empty) {
    wait.trouble_since = now;
    if (now - wait.since > options_.patience) {
      throw TrainerError("ps " + std::to_string(server) + " at " + options_.servers[server] +
                         " is there, but has not answered " + text_of(options_.state.self) +
                         " for " + std::to_string(static_cast<long>(options_.patience)) +
                         " s: do the other workers still run?");
    }
    return false;
  }
  const std::string who = "ps " + std::to_string(server) + " at " + options_.servers[server];
  const std::string what = is_silent ? " does not answer" : " has no variables yet";
  if (now - wait.trouble_since > options_.deadline) {
    throw TrainerError(who + what + ", and " + text_of(options_.state.self) + " has waited for " +
                       std::to_string(static_cast<long>(options_.deadline)) + " s: " +
                       (!is_silent             ? "start the chief"
                        : options_.access.keys ? "start it, with the secret that this task has"
                                               : "start it, as the same user"));
  }
  if (!wait.said && now - wait.trouble_since > 2.0 && options_.say) {
    wait.said = true;
    const std::string line = text_of(options_.state.self) + " waits for " + who + ", which" + what +
                             ", for at most " +
                             std::to_string(static_cast<long>(options_.deadline)) + " s";
    lock.unlock();
    options_.say(line);
  }
  return false;
}

Message Client::finish(std::uint32_t group) {
  Wait wait{steady_seconds(), steady_seconds()};
  bool creates = false;
  while (true) {
    const bool done = look(group, wait);
    if (!done) {
      bool empty = false;
      if (!creates) {
        const std::lock_guard lock(mutex_);
        empty = must_create(group);
        if (empty) state_.forget(group);
      }
      if (empty) {
        begin(options_.create(group));
        creates = true;
      }
      continue;
    }
    std::optional<Message> answer;
    {
      const std::lock_guard lock(mutex_);
      answer = state_.take_answer(group);
    }
    if (!answer) throw TrainerError("there is no request to group " + std::to_string(group));
    if (answer->kind == Kind::kRefused) throw TrainerError(answer->text, kExitConfiguration);
    if (creates) {
      creates = false;
      wait.since = steady_seconds();
      begin(requests_[group]);
      continue;
    }
    requests_[group] = {};  // nobody keeps what it was lent
    bytes_ += bytes_of(answer->floats);
    return std::move(*answer);
  }
}

bool Client::closed() {
  const std::lock_guard lock(mutex_);
  return state_.closed();
}

Message Client::ask(Message message) {
  const std::uint32_t group = message.group;
  start(std::move(message));
  return finish(group);
}

std::optional<Message> Client::try_ask(Message message, double seconds) {
  const std::uint32_t group = message.group;
  start(std::move(message));
  const double end = steady_seconds() + seconds;
  std::unique_lock lock(mutex_);
  while (state_.is_under_way(group) && !state_.closed() && failure_.empty() &&
         steady_seconds() < end) {
    answered_.wait_for(lock, std::chrono::milliseconds(50));
  }
  state_.forget(group);
  return state_.take_answer(group);
}

}  // namespace ronde::trainer::server
