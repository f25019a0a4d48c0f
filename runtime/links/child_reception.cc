// SPDX-License-Identifier: Apache-2.0
// The reception of the children: see child_reception.h.
#include "runtime/links/child_reception.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/numbers.h"

namespace ronde::runtime {

namespace {

using base::Instant;
using base::Status;
using collectives::FileDescriptor;

// Of one listener at a time, so that those who wait to be heard are heard in between.
constexpr int kAcceptedAtOnce = 64;

}  // namespace

ChildReception::ChildReception(std::vector<const FileDescriptor*> listeners,
                               std::vector<ExpectedChild> children, const LeaderHello& hello,
                               const Keepalive& keepalive)
    : listeners_(std::move(listeners)),
      hello_(hello),
      keepalive_(keepalive),
      missing_(children.size()) {
  for (ExpectedChild& child : children) children_.push_back({std::move(child), "", {}});
}

void ChildReception::watch(std::vector<pollfd>& entries) {
  for (const FileDescriptor* listener : listeners_) entries.push_back({listener->get(), POLLIN, 0});
  for (const Stranger& stranger : strangers_) entries.push_back({stranger.socket.get(), POLLIN, 0});
  watched_children_.clear();
  for (std::size_t i = 0; i < children_.size(); ++i) {
    if (!children_[i].socket.valid()) continue;
    // Not for reading: a child may send frames already, which its link will read.
    entries.push_back({children_[i].socket.get(), POLLRDHUP, 0});
    watched_children_.push_back(i);
  }
}

Status ChildReception::step(std::span<const pollfd> entries, Instant now) {
  const std::size_t heard = strangers_.size();
  const auto of_strangers = entries.subspan(listeners_.size(), heard);
  const auto of_children = entries.subspan(listeners_.size() + heard);
  for (std::size_t i = 0; i < of_children.size(); ++i) {
    if (of_children[i].revents != 0) lose(children_[watched_children_[i]]);
  }
  for (std::size_t i = 0; i < heard; ++i) {
    if (of_strangers[i].revents != 0) hear(strangers_[i]);
    if (strangers_[i].socket.valid() && now - strangers_[i].since >= kHelloTime) {
      turn_away(strangers_[i], Trouble::kSlow);
    }
  }
  forget_closed();
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    if (entries[i].revents != 0) RONDE_RETURN_IF_ERROR(accept_some(*listeners_[i], now));
  }
  return {};
}

Status ChildReception::accept_some(const FileDescriptor& listener, Instant now) {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    FileDescriptor socket = accept_next(listener, keepalive_);
    if (!socket.valid()) {
      const int error = errno;
      if (error == EAGAIN) return {};
      if (error != EMFILE && error != ENFILE && error != ENOMEM && error != ENOBUFS) {
        continue;  // of a connection that has ended before it was accepted
      }
      if (strangers_.empty()) return Status::system("could not accept another leader", error);
      drop_oldest();
      continue;
    }
    const auto from = other_end(socket);
    strangers_.push_back(
        {std::move(socket), HelloReader(), now, from ? text_of(*from) : std::string("a socket")});
    hear(strangers_.back());  // a child has said hello by now, so that no crowd delays it
    if (!strangers_.back().socket.valid()) strangers_.pop_back();
    if (strangers_.size() > kMostStrangers) drop_oldest();
  }
  return {};
}

void ChildReception::hear(Stranger& stranger) {
  switch (stranger.reader.read(stranger.socket)) {
    case HelloReader::Got::kPart:
      return;
    case HelloReader::Got::kGarbage:
      return turn_away(stranger, Trouble::kGarbage);
    case HelloReader::Got::kEnd:
      return turn_away(stranger, Trouble::kCut);
    case HelloReader::Got::kHello:
      return judge(stranger, stranger.reader.hello());
  }
}

void ChildReception::judge(Stranger& stranger, const LeaderHello& hello) {
  if (hello.version != hello_.version) return turn_away(stranger, Trouble::kVersion);
  if (!same_secret(hello.secret, hello_.secret)) return turn_away(stranger, Trouble::kSecret);
  const auto child = std::find_if(children_.begin(), children_.end(), [&](const Child& one) {
    return one.expected.host == hello.host;
  });
  if (child == children_.end()) return turn_away(stranger, Trouble::kNoChild);
  if (child->socket.valid()) return turn_away(stranger, Trouble::kTwice);
  LeaderHello answer = hello_;
  answer.secret = inverted(hello_.secret);
  if (!send_hello(stranger.socket, answer)) return turn_away(stranger, Trouble::kCut);
  child->socket = std::move(stranger.socket);
  child->from = stranger.from;
  --missing_;
}

void ChildReception::turn_away(Stranger& stranger, Trouble trouble) {
  Count& count = counts_.at(static_cast<std::size_t>(trouble));
  ++count.times;
  count.last_from = stranger.from;
  stranger.socket.reset();
}

void ChildReception::drop_oldest() {
  turn_away(strangers_.front(), Trouble::kCrowd);
  strangers_.erase(strangers_.begin());
}

void ChildReception::forget_closed() {
  std::erase_if(strangers_, [](const Stranger& one) { return !one.socket.valid(); });
}

void ChildReception::lose(Child& child) {
  Count& count = counts_.at(static_cast<std::size_t>(Trouble::kLost));
  ++count.times;
  count.last_from = child.from;
  child.socket.reset();
  ++missing_;
}

std::vector<LinkEnd> ChildReception::take() {
  std::vector<LinkEnd> ends;
  ends.reserve(children_.size());
  for (Child& child : children_) {
    ends.push_back({child.expected.host,
                    "host " + std::to_string(child.expected.host) + " (" +
                        child.expected.host_name + ", " + child.from + ")",
                    std::move(child.socket)});
  }
  return ends;
}

std::vector<std::int32_t> ChildReception::missing() const {
  std::vector<std::int32_t> hosts;
  for (const Child& child : children_) {
    if (!child.socket.valid()) hosts.push_back(child.expected.host);
  }
  return hosts;
}

const char* ChildReception::words_of(Trouble trouble) {
  switch (trouble) {
    case Trouble::kGarbage:
      return "what was sent is not of Ronde";
    case Trouble::kVersion:
      return "another version of Ronde was at the other end";
    case Trouble::kSecret:
      return "the secret was not this job's";
    case Trouble::kNoChild:
      return "the host at the other end has another parent";
    case Trouble::kTwice:
      return "the host at the other end was connected already";
    case Trouble::kCut:
      return "the other end closed it before a whole hello";
    case Trouble::kSlow:
      return "no whole hello came within 5 s";
    case Trouble::kCrowd:
      return "too many others were waiting";
    case Trouble::kLost:
      return "a host left again before all had come";
  }
  return "";
}

void ChildReception::report(const base::Log& log) const {
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    const Count& count = counts_.at(i);
    if (count.times == 0) continue;
    const auto trouble = static_cast<Trouble>(i);
    // A host with several ways to its parent may take more than one of them.
    const auto level =
        trouble == Trouble::kTwice ? base::LogLevel::kDebug : base::LogLevel::kWarning;
    log.log(level, "while the hosts connected, " + std::to_string(count.times) +
                       (count.times == 1 ? " connection was" : " connections were") +
                       " turned away: " + words_of(trouble) + " (last from " + count.last_from +
                       ")");
  }
}

}  // namespace ronde::runtime
