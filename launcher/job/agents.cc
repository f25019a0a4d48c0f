// SPDX-License-Identifier: Apache-2.0
// One line for each host.
#include "launcher/job/agents.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace ronde::launcher {

namespace {

// How much an agent may send that is not printed yet.
constexpr std::int64_t kCredit = std::int64_t{1} << 20U;
// The number of a relayed connection holds its host.
constexpr unsigned kHostShift = 40;
constexpr std::uint64_t kOwnNumber = (std::uint64_t{1} << kHostShift) - 1;

}  // namespace

base::Status Agents::start(const Signals& signals) {
  hosts_.resize(plan_.hosts.size());
  for (const bool here : {true, false}) {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const HostPlan& host = plan_.hosts[i];
      if (host.here != here) continue;
      auto line =
          here ? AgentLine::here(signals)
               : AgentLine::there(plan_.start_command, host.host, plan_.agent_program, signals);
      RONDE_RETURN_IF_ERROR(line.status());
      hosts_[i].line.emplace(std::move(*line));
    }
  }
  return {};
}

void Agents::start_ranks() {
  std::set<std::string> served{hosts_.front().identity};
  std::map<std::string, std::int32_t> local;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    local[hosts_[i].identity] += plan_.hosts[i].start.count;
  }
  std::map<std::string, std::int32_t> begun;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    hosts_[i].heard = clock_.now();
    StartRanks start = plan_.hosts[i].start;
    start.relays = served.insert(hosts_[i].identity).second;
    start.local_size = local[hosts_[i].identity];
    start.local_first =
        std::exchange(begun[hosts_[i].identity], begun[hosts_[i].identity] + start.count);
    hosts_[i].line->send(start);
    hosts_[i].line->send(Credit{kCredit});
  }
}

void Agents::add_to(std::vector<pollfd>& entries) const {
  for (const HostState& host : hosts_) {
    if (host.line && !host.over) host.line->add_to(entries);
  }
}

std::vector<Agents::Event> Agents::serve(Output& output) {
  std::vector<Event> said;
  for (std::size_t i = 0; i < hosts_.size(); ++i) hear(i, output, said);
  return said;
}

void Agents::hear(std::size_t index, Output& output, std::vector<Event>& said) {
  HostState& host = hosts_[index];
  if (!host.line || host.over) return;
  host.line->serve(output);
  std::string why;
  while (!host.over) {
    auto message = host.line->next();
    if (!message.ok()) {
      host.over = true;
      why = message.status().message();
    } else if (!message->has_value()) {
      break;
    } else if (!take(index, **message)) {
      said.push_back({index, std::move(*message)});
    }
  }
  host.over = host.over || host.line->closed();
  if (host.over && !host.empty)
    said.push_back({index, {}, true, why.empty() ? last_words(index) : why});
}

bool Agents::take(std::size_t index, AgentMessage& message) {
  HostState& host = hosts_[index];
  host.heard = clock_.now();
  if (const auto* const hello = std::get_if<AgentHello>(&message)) {
    host.name = hello->host_name;
    host.identity = hello->identity;
    return false;
  }
  if (const auto* const printed = std::get_if<Printed>(&message)) {
    host.owed += std::ssize(printed->bytes);
    return false;
  }
  if (auto* const rest = std::get_if<Leftovers>(&message)) {
    host.rest = std::move(*rest);
    host.empty = host.rest.processes == 0;
    return true;
  }
  if (auto* const relay = std::get_if<Relay>(&message)) {
    pass(index, std::move(*relay));
    return true;
  }
  return std::holds_alternative<Heartbeat>(message);
}

// From another host to rank 0's, and back.
void Agents::pass(std::size_t index, Relay relay) {
  const auto number = static_cast<std::uint64_t>(relay.connection);
  const std::size_t to = index == 0 ? number >> kHostShift : 0;
  relay.connection = static_cast<std::int64_t>(
      index == 0 ? number & kOwnNumber : number | (std::uint64_t{index} << kHostShift));
  if (to < hosts_.size() && to != index && hosts_[to].line) hosts_[to].line->send(relay);
}

// Where a start is given up, one that has not even greeted is not waited for.
std::vector<Agents::Event> Agents::beat() {
  tell_all(Heartbeat{});
  std::vector<Event> said;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    HostState& host = hosts_[i];
    const bool begun = host.heard != base::Instant();
    const bool heard = clock_.now() - host.heard <= plan_.link_timeout;
    if (plan_.hosts[i].here || host.over || !begun || heard) continue;
    host.over = true;
    said.push_back(
        {i, {}, true, "nothing was heard for so long as RONDE_LINK_TIMEOUT_SECONDS says"});
  }
  return said;
}

void Agents::tell_all(const AgentMessage& message) {
  for (HostState& host : hosts_) {
    if (host.line && !host.over) host.line->send(message);
  }
}

void Agents::tell(std::size_t host, const AgentMessage& message) {
  if (hosts_[host].line) hosts_[host].line->send(message);
}

void Agents::give_credit() {
  for (HostState& host : hosts_) {
    if (host.owed > 0 && host.line && !host.over)
      host.line->send(Credit{std::exchange(host.owed, 0)});
  }
}

bool Agents::all_there() const {
  return std::ranges::all_of(hosts_, [](const HostState& one) { return !one.name.empty(); });
}

const std::string& Agents::last_words(std::size_t host) const {
  static const std::string kNone;
  return hosts_[host].line ? hosts_[host].line->last_words() : kNone;
}

Leftovers Agents::rest() const {
  Leftovers all;
  for (const HostState& host : hosts_) {
    all.processes += host.rest.processes;
    if (host.rest.processes > 0) all.name = host.rest.name;
  }
  return all;
}

bool Agents::all_over() const {
  return std::ranges::all_of(hosts_, [](const HostState& one) { return one.over || !one.line; });
}

void Agents::give_up() {
  for (HostState& host : hosts_) host.over = true;
}

void Agents::close() {
  for (HostState& host : hosts_) host.line.reset();
}

}  // namespace ronde::launcher
