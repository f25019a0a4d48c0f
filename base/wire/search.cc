// SPDX-License-Identifier: Apache-2.0
// The search's step: finished connections, answers, timeouts, and the next address to try.
#include "base/wire/search.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

namespace ronde::base {

namespace {

// How long an attempt may take: longer than a lost first packet takes to be sent again (1 s).
constexpr auto kTryTime = std::chrono::seconds(2);
// The pause between two rounds over all addresses, for when each refuses at once; it grows, so that
// many who wait for long cost little.
constexpr Nanoseconds kFirstPause = std::chrono::milliseconds(5);
constexpr Nanoseconds kLongestPause = std::chrono::milliseconds(250);

constexpr const char* kAskedText = "connected, but there was no answer";

}  // namespace

SearchPlan::Address SearchPlan::at(const Endpoint& to, std::uint32_t link_local_index,
                                   const Keepalive& keepalive) {
  return {text_of(to), [=] { return begin_connect(to, link_local_index, keepalive); }};
}

Search::Search(SearchPlan plan)
    : plan_(std::move(plan)), attempts_(plan_.addresses.size()), pause_(kFirstPause) {
  for (std::size_t i = 0; i < attempts_.size(); ++i) attempts_[i].to = plan_.addresses[i];
}

void Search::watch(std::vector<pollfd>& entries) {
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

void Search::step(std::span<const pollfd> entries, Instant now) {
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
    attempts_.clear();  // who listens would reject any other connection
    return;
  }
  begin_next(now);
}

Status Search::run(const Clock& clock, Instant deadline) {
  std::vector<pollfd> entries;
  step({}, clock.now());
  while (!done() && !refusal() && clock.now() < deadline) {
    entries.clear();
    watch(entries);
    // Without a connection under way only the pause ends the wait.
    const Instant until = std::min(deadline, entries.empty() ? not_before_ : clock.after(kTryTime));
    if (::poll(entries.data(), entries.size(), poll_milliseconds(clock, until)) < 0 &&
        errno != EINTR) {
      return Status::system("could not wait for a connection", errno);
    }
    step(entries, clock.now());
  }
  return {};
}

std::optional<HelloReader::Got> Search::refusal() const {
  if (attempts_.empty()) return std::nullopt;
  const bool all = std::ranges::all_of(
      attempts_, [](const Attempt& one) { return one.refusal && one.state == State::kIdle; });
  return all ? attempts_.front().refusal : std::nullopt;
}

void Search::fail(Attempt& attempt, std::string outcome) {
  attempt.socket.reset();
  attempt.state = State::kIdle;
  attempt.outcome = std::move(outcome);
}

void Search::on_connected(Attempt& attempt, Instant now) {
  const int error = pending_error(attempt.socket);
  if (error != 0) return fail(attempt, error_text(error));
  const auto nonce = make_nonce();
  if (!nonce.ok()) return fail(attempt, nonce.status().message());
  attempt.answer.emplace(Handshake::Role::kCaller, plan_.secret, *nonce);
  if (!attempt.answer->begin(attempt.socket)) return fail(attempt, "the connection was closed");
  attempt.state = State::kAsked;
  attempt.since = now;
  attempt.outcome = kAskedText;
}

void Search::on_answer(Attempt& attempt) {
  using Got = HelloReader::Got;
  Got got = attempt.answer->read(attempt.socket);
  if (got == Got::kProven && !send_hello(attempt.socket, plan_.hello())) got = Got::kEnd;
  std::string other;
  if (got == Got::kProven && plan_.check_answer) got = attempt.answer->read(attempt.socket);
  if (got == Got::kHello) other = plan_.check_answer(attempt.answer->hello());
  switch (got) {
    case Got::kPart:
      return;
    case Got::kProven:
    case Got::kHello:
      if (!other.empty()) return fail(attempt, other);
      found_ = Found{std::move(attempt.socket), attempt.to.text};
      return;
    case Got::kGarbage:
      return fail(attempt, "what answers there is not Ronde");
    case Got::kVersion:
      attempt.refusal = got;
      return fail(attempt, "another version of Ronde answers there");
    case Got::kSecret:
      attempt.refusal = got;
      return fail(attempt, "another job answers there");
    case Got::kEnd:
      return fail(attempt, "the connection was closed without an answer");
  }
}

void Search::begin_next(Instant now) {
  // Only one attempt connects at a time, so that the nearest address that works wins.
  const bool busy = std::any_of(attempts_.begin(), attempts_.end(), [&](const Attempt& attempt) {
    return attempt.state == State::kConnecting ||
           (attempt.state == State::kAsked && now - attempt.since < kTryTime);
  });
  if (busy) return;
  if (next_ == attempts_.size()) {
    next_ = 0;
    not_before_ = now + std::exchange(pause_, std::min(2 * pause_, kLongestPause));
  }
  if (next_ == 0 && now < not_before_) return;
  while (next_ < attempts_.size() && attempts_[next_].state != State::kIdle) ++next_;
  if (next_ < attempts_.size()) begin(attempts_[next_++], now);
}

void Search::begin(Attempt& attempt, Instant now) {
  auto socket = attempt.to.begin();
  if (!socket.ok()) return fail(attempt, socket.status().message());
  attempt.socket = std::move(*socket);
  attempt.refusal.reset();
  attempt.state = State::kConnecting;
  attempt.since = now;
  // An attempt that the deadline cuts short must not replace the outcome of a finished one.
  if (!attempt.tried) attempt.outcome = "timed out";
  attempt.tried = true;
}

std::string Search::tried() const {
  std::string text;
  for (const Attempt& attempt : attempts_) {
    text += (text.empty() ? "" : ", ") + attempt.to.text + ": " + attempt.outcome;
  }
  return text.empty() ? "no address" : text;
}

}  // namespace ronde::base
