// SPDX-License-Identifier: Apache-2.0
// A server process: which group a message is for, and the chief's views.
#include <algorithm>
#include <string_view>
#include <utility>

#include "bindings/trainer/server/protocol.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {

std::string text_of(const Address& address) {
  switch (address.role) {
    case Role::kServer:
      return "ps " + std::to_string(address.index);
    case Role::kChief:
      return "the chief";
    case Role::kEvaluator:
      return "the evaluator";
    default:
      return "worker " + std::to_string(address.index);
  }
}

Message make_message(Kind kind, std::uint32_t group, std::string text) {
  Message message;
  message.kind = kind;
  message.group = group;
  message.text = std::move(text);
  return message;
}

void require_no_error(const Message& closing, const Address& self) {
  if (closing.text.empty()) return;
  const auto code = std::clamp<std::uint64_t>(closing.version, kExitFailure, 255);
  throw TrainerError(text_of(self) + " ends: the chief has ended with an error: " + closing.text,
                     static_cast<int>(code));
}

std::optional<std::pair<std::string, std::string>> difference(std::string_view one,
                                                              std::string_view other) {
  const auto next = [](std::string_view& text) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    return line;
  };
  std::map<std::string_view, std::string_view> known;
  while (!one.empty()) {
    const std::string_view line = next(one);
    known.emplace(line.substr(0, line.find(' ')), line);
  }
  while (!other.empty()) {
    const std::string_view line = next(other);
    const auto found = known.find(line.substr(0, line.find(' ')));
    if (found != known.end() && found->second != line)
      return {{std::string(found->second), std::string(line)}};
  }
  return {};
}

ModeOptions mode_of(const std::string& text) {
  constexpr std::string_view kStale = "stale=";
  if (text == "sync") return {.mode = Mode::kSync};
  if (text == "async") return {.mode = Mode::kAsync};
  if (text.starts_with(kStale)) {
    const auto bound = number_of<std::uint64_t>(text.substr(kStale.size()));
    if (bound) return {.mode = *bound == 0 ? Mode::kSync : Mode::kStale, .bound = *bound};
  }
  throw TrainerError("there is no mode '" + text + "': use sync, async or stale=k, such as stale=2",
                     kExitConfiguration);
}

std::string text_of(const ModeOptions& mode) {
  if (mode.mode == Mode::kSync) return "sync";
  return mode.mode == Mode::kAsync ? "async" : "stale=" + std::to_string(mode.bound);
}

ServerState::ServerState(ServerOptions options) : options_(std::move(options)) {
  const std::uint32_t own = options_.index;
  shards_[own] = std::make_unique<Shard>(options_, own, true);
  if (!options_.standby || options_.servers < 2) return;
  const std::uint32_t before = (own + options_.servers - 1) % options_.servers;
  shards_[before] = std::make_unique<Shard>(options_, before, false);
}

const Shard* ServerState::shard(std::uint32_t group) const {
  const auto found = shards_.find(group);
  return found == shards_.end() ? nullptr : found->second.get();
}

bool ServerState::closed() const {
  return std::ranges::all_of(
      shards_, [](const auto& one) { return !one.second->primary() || one.second->closed(); });
}

void ServerState::require_no_error() const {
  for (const auto& [group, one] : shards_) {
    if (one->closing()) {
      server::require_no_error(*one->closing(), {Role::kServer, options_.index, 0});
    }
  }
}

bool ServerState::all_told() const {
  return std::ranges::all_of(
      shards_, [](const auto& one) { return !one.second->primary() || one.second->all_told(); });
}

std::size_t ServerState::most_bytes(const Address& from) const {
  std::size_t most = 0;
  for (const auto& [group, one] : shards_) most = std::max(most, one->most_bytes(from));
  return most;
}

std::vector<std::string> ServerState::take_news() {
  std::vector<std::string> all;
  for (const auto& [group, one] : shards_) {
    for (std::string& line : one->take_news()) all.push_back(std::move(line));
  }
  return all;
}

Messages ServerState::on_message(double now, const Message& message) {
  Messages out;
  last_heard_ = std::max(last_heard_, now);
  take_view(now, message, out);
  const auto found = shards_.find(message.group);
  Shard* const shard = found == shards_.end() ? nullptr : found->second.get();
  if (message.kind == Kind::kBeat) {
    for (const auto& [group, one] : shards_) one->heard(now, message.from);
    Message answer = make_message(Kind::kBeatBack);
    answer.to = message.from;
    answer.dropped = shards_.at(options_.index)->lost();
    const std::uint32_t before = (options_.index + options_.servers - 1) % options_.servers;
    const Shard* const held = options_.standby ? this->shard(before) : nullptr;
    if (held != nullptr && !held->primary()) answer.version = held->entries();
    out.push_back(std::move(answer));
  } else if (shard == nullptr || deposed()) {
    // The sender has another view: one of the two learns of the newer one soon.
  } else if (message.from.role == Role::kServer) {
    shard->on_server(message, out);
  } else if (message.entry == 0 && message.kind <= Kind::kClose) {
    shard->on_request(now, message, out);
  }
  sign(out);
  return out;
}

// Entries keep the task that has asked for them as their origin.
void ServerState::sign(Messages& out) const {
  for (Message& one : out) {
    one.from = {Role::kServer, options_.index, options_.start};
    one.view = view_;
    one.dead = dead_;
  }
}

Messages ServerState::on_tick(double now) {
  Messages out;
  if (!deposed()) {
    for (const auto& [group, shard] : shards_) shard->on_tick(now, out);
  }
  sign(out);
  return out;
}

void ServerState::take_view(double now, const Message& message, Messages& out) {
  // Without standbys no view has a dead server; only the chief and servers spread views.
  if (message.view <= view_ || !options_.standby || options_.servers < 2) return;
  // A server that was started again, without variables, must learn that another has its group.
  const bool known = !shards_.at(options_.index)->created() ||
                     std::ranges::any_of(shards_, [&message](const auto& one) {
                       return one.second->knows(message.from);
                     });
  const bool believed = std::ranges::any_of(
      shards_, [&message](const auto& one) { return one.second->believes(message.from); });
  if (!believed && !(options_.is_chief(message.from) && known)) return;
  view_ = message.view;
  const std::uint64_t news = message.dead & ~dead_;
  dead_ |= message.dead;
  const std::uint32_t next = (options_.index + 1) % options_.servers;
  const std::uint32_t before = (options_.index + options_.servers - 1) % options_.servers;
  if (((news >> before) & 1U) != 0) shards_.at(before)->promote(now);
  if (((news >> next) & 1U) != 0) shards_.at(options_.index)->drop_standby(out);
}

}  // namespace ronde::trainer::server
