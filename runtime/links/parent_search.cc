// SPDX-License-Identifier: Apache-2.0
// The search's step: finished connections, answers, timeouts, and the next address to try.
#include "runtime/links/parent_search.h"

#include <algorithm>
#include <utility>
#include "runtime/links/link_messages.h"

namespace ronde::runtime {

namespace {

// How long an attempt may take: longer than a lost first packet takes to be sent again (1 s).
constexpr auto kTryTime = std::chrono::seconds(2);
// The pause between two rounds over all addresses, for when each refuses at once.
constexpr auto kRoundPause = std::chrono::milliseconds(100);

constexpr const char* kVersionText = "another version of Ronde answers there";
constexpr const char* kAskedText = "connected, but there was no answer";

}  // namespace

ParentSearch::ParentSearch(SearchPlan plan)
    : plan_(std::move(plan)), attempts_(plan_.addresses.size()) {
  for (std::size_t i = 0; i < attempts_.size(); ++i) attempts_[i].to = plan_.addresses[i];
}

void ParentSearch::watch(std::vector<pollfd>& entries) {
  watched_.clear();
  if (done()) return;
  for (std::size_t i = 0; i < attempts_.size(); ++i) {
    const Attempt& attempt = attempts_[i];
    if (attempt.state == State::kIdle) continue;
    const short events = attempt.state == State::kConnecting ? POLLOUT : POLLIN;
    entries.push_back({attempt.socket.get(), events, 0});
    watched_.push_back(i);
  }
}

void ParentSearch::step(std::span<const pollfd> entries, base::Instant now) {
  for (std::size_t i = 0; i < watched_.size() && !done(); ++i) {
    Attempt& attempt = attempts_[watched_[i]];
    const bool ready = entries[i].revents != 0;
    if (attempt.state == State::kAsked) {
      if (ready) on_answer(attempt);
    } else if (ready) {
      on_connected(attempt, now);
    } else if (now - attempt.since >= kTryTime) {
      fail(attempt, "timed out");
    }
  }
  if (done()) {
    attempts_.clear();  // the parent would reject any other connection
    return;
  }
  begin_next(now);
}

void ParentSearch::fail(Attempt& attempt, std::string outcome) {
  attempt.socket.reset();
  attempt.state = State::kIdle;
  attempt.outcome = std::move(outcome);
}

void ParentSearch::on_connected(Attempt& attempt, base::Instant now) {
  const int error = base::pending_error(attempt.socket);
  if (error != 0) return fail(attempt, base::error_text(error));
  const auto nonce = base::make_nonce();
  if (!nonce.ok()) return fail(attempt, nonce.status().message());
  attempt.answer.emplace(base::Handshake::Role::kCaller, plan_.secret, *nonce);
  if (!attempt.answer->begin(attempt.socket)) return fail(attempt, "the connection was closed");
  attempt.state = State::kAsked;
  attempt.since = now;
  attempt.outcome = kAskedText;
}

void ParentSearch::on_answer(Attempt& attempt) {
  using Got = base::HelloReader::Got;
  Got got = attempt.answer->read(attempt.socket);
  if (got == Got::kProven) {
    const bool sent = base::send_hello(attempt.socket, encode(LeaderHello{.host = plan_.host}));
    got = sent ? attempt.answer->read(attempt.socket) : Got::kEnd;
  }
  switch (got) {
    case Got::kPart:
    case Got::kProven:
      return;
    case Got::kGarbage:
      return fail(attempt, "what answers there is not Ronde");
    case Got::kVersion:
      return fail(attempt, kVersionText);
    case Got::kSecret:
      return fail(attempt, "another job answers there");
    case Got::kEnd:
      return fail(attempt, "the connection was closed without an answer");
    case Got::kHello:
      return on_hello(attempt, attempt.answer->hello());
  }
}

void ParentSearch::on_hello(Attempt& attempt, std::span<const std::byte> hello) {
  const auto answer = decode_leader_hello(hello);
  if (!answer.ok() || answer->version != LeaderHello::kVersion) {
    return fail(attempt, kVersionText);
  }
  if (answer->host != plan_.parent) {
    return fail(attempt, "host " + std::to_string(answer->host) + " answers there");
  }
  link_ = base::LinkEnd{plan_.parent,
                        "host " + std::to_string(plan_.parent) + " (" + plan_.parent_name + ", " +
                            text_of(attempt.to) + ")",
                        std::move(attempt.socket)};
}

void ParentSearch::begin_next(base::Instant now) {
  // Only one attempt connects at a time, so that the nearest address that works wins.
  const bool busy = std::any_of(attempts_.begin(), attempts_.end(), [&](const Attempt& attempt) {
    return attempt.state == State::kConnecting ||
           (attempt.state == State::kAsked && now - attempt.since < kTryTime);
  });
  if (busy) return;
  if (next_ == attempts_.size()) {
    next_ = 0;
    not_before_ = now + kRoundPause;
  }
  if (next_ == 0 && now < not_before_) return;
  while (next_ < attempts_.size() && attempts_[next_].state != State::kIdle) ++next_;
  if (next_ < attempts_.size()) begin(attempts_[next_++], now);
}

void ParentSearch::begin(Attempt& attempt, base::Instant now) {
  auto socket = base::begin_connect(attempt.to, plan_.link_local_index, plan_.keepalive);
  if (!socket.ok()) return fail(attempt, socket.status().message());
  attempt.socket = std::move(*socket);
  attempt.state = State::kConnecting;
  attempt.since = now;
  // An attempt that the deadline cuts short must not replace the outcome of a finished one.
  if (!attempt.tried) attempt.outcome = "timed out";
  attempt.tried = true;
}

std::string ParentSearch::tried() const {
  std::string text;
  for (const Attempt& attempt : attempts_) {
    text += (text.empty() ? "" : ", ") + text_of(attempt.to) + ": " + attempt.outcome;
  }
  return text.empty() ? "no address" : text;
}

}  // namespace ronde::runtime
