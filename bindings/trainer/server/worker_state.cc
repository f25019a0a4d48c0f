// SPDX-License-Identifier: Apache-2.0
// A task's requests to servers: which are under way, which are sent again, and to which server;
// and, on the chief, which servers are dead.
#include <algorithm>
#include <utility>

#include "bindings/trainer/server/protocol.h"

namespace ronde::trainer::server {

namespace {

constexpr double kNever = -1e9;
constexpr double kSoon = 0.1;      // seconds until a server without variables is asked again
constexpr double kSlowLine = 1e7;  // bytes in a second

}  // namespace

WorkerState::WorkerState(WorkerOptions options)
    : options_(std::move(options)),
      groups_(options_.servers),
      heard_(options_.servers, kNever),
      starts_(options_.servers),
      held_(options_.servers) {}

std::optional<std::uint32_t> WorkerState::home(std::uint32_t group) const {
  if (((dead_ >> group) & 1U) == 0) return group;
  const std::uint32_t next = (group + 1) % options_.servers;
  if (options_.standby && ((dead_ >> next) & 1U) == 0) return next;
  return {};
}

bool WorkerState::is_under_way(std::uint32_t group) const {
  return groups_.at(group).request.has_value();
}

bool WorkerState::closed() const {
  if (closing_) require_no_error(*closing_, options_.self);
  return closing_.has_value();
}

std::optional<Message> WorkerState::take_answer(std::uint32_t group) {
  return std::exchange(groups_.at(group).answer, {});
}

void WorkerState::request(double now, Message message, Messages& out) {
  Group& group = groups_.at(message.group);
  message.from = options_.self;
  message.sequence = ++group.requests;
  const std::uint32_t number = message.group;
  group.bytes = std::max(group.bytes, bytes_of(message.floats));
  group.request = std::move(message);
  group.answer.reset();
  // On a slow line a repeated message would only queue behind the first one.
  group.patience = options_.resend + static_cast<double>(group.bytes) / kSlowLine;
  if (group.welcome) {
    send(now, number, out);
  } else {
    say_hello(now, number, out);
  }
}

void WorkerState::send(double now, std::uint32_t number, Messages& out) {
  Group& group = groups_[number];
  const auto server = home(number);
  if (!server) return;
  Message message = *group.request;
  message.to = {Role::kServer, *server, 0};
  message.view = view_;
  message.dead = dead_;
  group.sent = now;
  out.push_back(std::move(message));
}

void WorkerState::say_hello(double now, std::uint32_t number, Messages& out) {
  Group& group = groups_[number];
  const auto server = home(number);
  if (!server || now - group.said_hello < options_.beat) return;
  group.said_hello = now;
  const std::string training = options_.training.empty() ? "" : "\n" + options_.training;
  Message hello = make_message(Kind::kHello, number, options_.job + training);
  hello.from = options_.self;
  hello.to = {Role::kServer, *server, 0};
  hello.sequence = group.requests;
  hello.view = view_;
  hello.dead = dead_;
  out.push_back(std::move(hello));
}

Messages WorkerState::on_message(double now, const Message& message) {
  Messages out;
  if (message.from.role != Role::kServer || message.from.index >= options_.servers) return out;
  if (message.kind == Kind::kClose) closing_ = message;
  heard_[message.from.index] = std::max(heard_[message.from.index], now);
  auto& starts = starts_[message.from.index];
  const bool is_new = message.from.incarnation != 0 &&
                      starts.insert(message.from.incarnation).second && starts.size() > 1;
  if (is_new) held_[message.from.index] = 0;
  if (message.kind == Kind::kBeatBack) held_[message.from.index] = message.version;
  const bool has_lost = is_new || (message.kind == Kind::kBeatBack && message.dropped);
  if (has_lost && options_.decides && may_declare_dead(message.from.index)) {
    declare_dead(message.from.index);  // the next one has its entries
    return out;
  }
  if (message.view > view_) {
    view_ = message.view;
    const std::uint64_t news = message.dead & ~dead_;
    dead_ |= message.dead;
    for (std::uint32_t i = 0; i < options_.servers; ++i) {
      if (((news >> i) & 1U) == 0) continue;
      groups_[i].welcome = false;
      groups_[i].said_hello = -1e9;
      if (groups_[i].request) say_hello(now, i, out);
    }
  }
  if (message.group >= options_.servers || message.kind == Kind::kBeatBack) return out;
  Group& group = groups_[message.group];
  const bool is_home = home(message.group) == message.from.index;
  switch (message.kind) {
    case Kind::kWelcome:
      if (!is_home || group.welcome) break;
      group.welcome = true;
      group.empty = message.dropped;
      if (group.request) send(now, message.group, out);
      break;
    case Kind::kUnknown:
      if (!is_home) break;
      group.welcome = false;
      if (group.request) say_hello(now, message.group, out);
      break;
    case Kind::kNotReady:
      if (!is_home) break;
      group.empty = true;
      group.patience = kSoon + static_cast<double>(group.bytes) / kSlowLine;
      break;
    default:
      if (!group.request || message.sequence != group.request->sequence) break;
      group.empty = false;
      group.bytes = std::max(group.bytes, bytes_of(message.floats));
      group.answer = message;
      group.request.reset();
  }
  return out;
}

// A server may be declared dead if its standby has all its entries, and lives.
bool WorkerState::may_declare_dead(std::uint32_t server) const {
  const std::uint32_t next = (server + 1) % options_.servers;
  const std::uint32_t before = (server + options_.servers - 1) % options_.servers;
  return options_.standby && options_.servers > 1 && held_[next] > 0 &&
         ((dead_ >> next) & 1U) == 0 && ((dead_ >> before) & 1U) == 0 &&
         ((dead_ >> server) & 1U) == 0;
}

void WorkerState::declare_dead(std::uint32_t server) {
  ++view_;
  dead_ |= std::uint64_t{1} << server;
  groups_[server].welcome = false;
  groups_[server].empty = false;
  groups_[server].said_hello = -1e9;
  beat_ = -1e9;  // at once
}

Messages WorkerState::on_tick(double now) {
  Messages out;
  if (began_ < 0.0) began_ = now;
  for (std::uint32_t i = 0; options_.decides && i < options_.servers; ++i) {
    const std::uint32_t next = (i + 1) % options_.servers;
    // A server that the chief has not heard since its own start has run, if the next server has
    // entries of it.
    if (now - std::max(began_, heard_[i]) < options_.server_timeout) continue;
    if (!may_declare_dead(i) || now - heard_[next] > options_.server_timeout / 2) continue;
    declare_dead(i);
  }
  for (std::uint32_t i = 0; i < options_.servers; ++i) {
    Group& group = groups_[i];
    if (!group.request) continue;
    if (!group.welcome) {
      say_hello(now, i, out);
    } else if (now - group.sent >= group.patience) {
      group.patience =
          std::max(group.patience, std::min(2.0 * group.patience, 8.0 * options_.resend));
      send(now, i, out);
    }
  }
  if (now - beat_ < options_.beat) return out;
  beat_ = now;
  for (std::uint32_t i = 0; i < options_.servers; ++i) {
    Message beat = make_message(Kind::kBeat);
    beat.from = options_.self;
    beat.to = {Role::kServer, i, 0};
    beat.view = view_;
    beat.dead = dead_;
    out.push_back(std::move(beat));
  }
  return out;
}

}  // namespace ronde::trainer::server
