// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/client.h"

#include <chrono>
#include <cstdlib>
#include <memory>
#include <utility>

#include "bindings/trainer/server/message_socket.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {

namespace {

// Seconds that an answer may take after the job is closed: servers stay a moment for those.
constexpr double kAfterClose = 1.0;

}  // namespace

Client::Client(ClientOptions options)
    : options_(std::move(options)), state_(options_.state), requests_(options_.servers.size()) {
  socket_ = std::make_unique<MessageSocket>(MessageSocketOptions{
      .self = options_.state.self, .access = options_.access, .say = options_.say});
  for (std::uint32_t i = 0; i < options_.servers.size(); ++i) {
    socket_->connect({Role::kServer, i, 0}, options_.servers[i]);
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Client::~Client() {
  thread_.request_stop();
  socket_->wake();
  thread_.join();
}

void Client::run(const std::stop_token& stop) {
  try {
    double tick = 0.0;
    while (!stop.stop_requested()) {
      const auto messages = socket_->receive(0.05);
      Messages out;
      {
        const std::lock_guard lock(mutex_);
        const double now = time_.listened();
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
      for (const Message& one : out) socket_->send(one);
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
    state_.request(time_.now(), message, outbox_);
  }
  socket_->wake();
}

void Client::start(Message message) {
  bytes_ += bytes_of(message.floats);
  begin(message);
  requests_[message.group] = std::move(message);
}

// A request for counts is answered without variables, too.
bool Client::must_create(std::uint32_t group) const {
  return options_.create && state_.is_empty(group) && requests_[group].kind != Kind::kStatus;
}

// Returns whether the answer has come. Throws at the deadlines.
bool Client::wait_a_while(std::uint32_t group, Wait& wait) {
  std::unique_lock lock(mutex_);
  answered_.wait_for(lock, std::chrono::milliseconds(50), [&] {
    return !state_.is_under_way(group) || !failure_.empty() || must_create(group);
  });
  if (!failure_.empty()) throw TrainerError(failure_);
  const bool closed = state_.closed();
  const double now = time_.now();
  if (!state_.is_under_way(group)) return true;
  if (closed && now - wait.since > kAfterClose) {
    throw TrainerError("the chief has closed the job, while " + text_of(options_.state.self) +
                           " was not heard: it ends",
                       EXIT_SUCCESS);
  }
  const auto home = state_.home(group);
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
  const std::string name = "ps " + std::to_string(server) + " at " + options_.servers[server];
  const std::string trouble = is_silent ? " does not answer" : " has no variables yet";
  if (now - wait.trouble_since > options_.deadline) {
    throw TrainerError(name + trouble + ", and " + text_of(options_.state.self) +
                       " has waited for " + std::to_string(static_cast<long>(options_.deadline)) +
                       " s: " +
                       (!is_silent             ? "start the chief"
                        : options_.access.keys ? "start it, with the secret that this task has"
                                               : "start it, as the same user"));
  }
  if (!wait.said && now - wait.trouble_since > 2.0 && options_.say) {
    wait.said = true;
    const std::string line = text_of(options_.state.self) + " waits for " + name + ", which" +
                             trouble + ", for at most " +
                             std::to_string(static_cast<long>(options_.deadline)) + " s";
    lock.unlock();
    options_.say(line);
  }
  return false;
}

// Gives up a request that needs variables, if this task must create them first.
bool Client::forget_if_empty(std::uint32_t group) {
  const std::lock_guard lock(mutex_);
  const bool empty = must_create(group);
  if (empty) state_.forget(group);
  return empty;
}

Message Client::finish(std::uint32_t group) {
  const double begins = now();
  Wait wait{begins, begins};
  bool creates = false;
  while (true) {
    if (!wait_a_while(group, wait)) {
      if (creates || !forget_if_empty(group)) continue;
      begin(options_.create(group));
      creates = true;
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
      wait.since = now();
      begin(requests_[group]);
      continue;
    }
    requests_[group] = {};  // ends the loan of its floats
    bytes_ += bytes_of(answer->floats);
    return std::move(*answer);
  }
}

double Client::now() {
  const std::lock_guard lock(mutex_);
  return time_.now();
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
  return wait_until(group, now() + seconds);
}

std::optional<Message> Client::wait_until(std::uint32_t group, double end) {
  std::unique_lock lock(mutex_);
  while (state_.is_under_way(group) && !state_.closed() && failure_.empty() && time_.now() < end) {
    answered_.wait_for(lock, std::chrono::milliseconds(50));
  }
  state_.forget(group);
  return state_.take_answer(group);
}

std::optional<std::uint32_t> Client::tell_all(const Message& message, double seconds) {
  const double end = now() + seconds;
  const auto groups = static_cast<std::uint32_t>(requests_.size());
  for (std::uint32_t group = 0; group < groups; ++group) {
    Message one = message;
    one.group = group;
    start(std::move(one));
  }
  std::optional<std::uint32_t> silent;
  for (std::uint32_t group = 0; group < groups; ++group) {
    if (!wait_until(group, end) && !silent) silent = group;
  }
  return silent;
}

}  // namespace ronde::trainer::server
