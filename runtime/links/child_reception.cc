// SPDX-License-Identifier: Apache-2.0
// The reception's step: listeners, strangers that owe a hello, and children that may disconnect.
#include "runtime/links/child_reception.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/numbers.h"
#include "base/process/secrets.h"

namespace ronde::runtime {

namespace {

using base::FileDescriptor;
using base::Instant;
using base::Status;

// How many connections a listener accepts in one step, so that hellos are read in between.
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
    // Only the end of the connection is awaited: a child may send frames already, which its
    // FrameSocket will read.
    entries.push_back({children_[i].socket.get(), POLLRDHUP, 0});
    watched_children_.push_back(i);
  }
}

Status ChildReception::step(std::span<const pollfd> entries, Instant now) {
  const std::size_t heard = strangers_.size();
  const auto of_strangers = entries.subspan(listeners_.size(), heard);
  const auto of_children = entries.subspan(listeners_.size() + heard);
  for (std::size_t i = 0; i < of_children.size(); ++i) {
    if (of_children[i].revents != 0) drop_child(children_[watched_children_[i]]);
  }
  for (std::size_t i = 0; i < heard; ++i) {
    if (of_strangers[i].revents != 0) read_hello(strangers_[i]);
    if (strangers_[i].socket.valid() && now - strangers_[i].since >= kHelloTime) {
      reject(strangers_[i], Trouble::kSlow);
    }
  }
  erase_closed();
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
        continue;  // the error is about a connection that ended before it was accepted
      }
      if (strangers_.empty()) return Status::system("could not accept another leader", error);
      reject_oldest();
      continue;
    }
    const auto from = other_end(socket);
    strangers_.push_back(
        {std::move(socket), HelloReader(), now, from ? text_of(*from) : std::string("a socket")});
    // A child's hello has usually arrived with its connection; so no crowd of strangers delays it.
    read_hello(strangers_.back());
    if (!strangers_.back().socket.valid()) strangers_.pop_back();
    if (strangers_.size() > kMostStrangers) reject_oldest();
  }
  return {};
}

void ChildReception::read_hello(Stranger& stranger) {
  switch (stranger.reader.read(stranger.socket)) {
    case HelloReader::Got::kPart:
      return;
    case HelloReader::Got::kGarbage:
      return reject(stranger, Trouble::kGarbage);
    case HelloReader::Got::kEnd:
      return reject(stranger, Trouble::kCut);
    case HelloReader::Got::kHello:
      return check_hello(stranger, stranger.reader.hello());
  }
}

void ChildReception::check_hello(Stranger& stranger, const LeaderHello& hello) {
  if (hello.version != hello_.version) return reject(stranger, Trouble::kVersion);
  if (!base::same_secret(hello.secret, hello_.secret)) return reject(stranger, Trouble::kSecret);
  const auto child = std::find_if(children_.begin(), children_.end(), [&](const Child& one) {
    return one.expected.host == hello.host;
  });
  if (child == children_.end()) return reject(stranger, Trouble::kNoChild);
  if (child->socket.valid()) return reject(stranger, Trouble::kTwice);
  LeaderHello answer = hello_;
  answer.secret = inverted(hello_.secret);
  if (!send_hello(stranger.socket, answer)) return reject(stranger, Trouble::kCut);
  child->socket = std::move(stranger.socket);
  child->from = stranger.from;
  --missing_;
}

void ChildReception::reject(Stranger& stranger, Trouble trouble) {
  Count& count = counts_.at(static_cast<std::size_t>(trouble));
  ++count.times;
  count.last_from = stranger.from;
  stranger.socket.reset();
}

void ChildReception::reject_oldest() {
  reject(strangers_.front(), Trouble::kCrowd);
  strangers_.erase(strangers_.begin());
}

void ChildReception::erase_closed() {
  std::erase_if(strangers_, [](const Stranger& one) { return !one.socket.valid(); });
}

void ChildReception::drop_child(Child& child) {
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

const char* ChildReception::reason_of(Trouble trouble) {
  switch (trouble) {
    case Trouble::kGarbage:
      return "what was sent is not Ronde's protocol";
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
      return "no whole hello arrived within 5 s";
    case Trouble::kCrowd:
      return "too many others were waiting";
    case Trouble::kLost:
      return "a host disconnected before all had connected";
  }
  return "";
}

void ChildReception::report(const base::Log& log) const {
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    const Count& count = counts_.at(i);
    if (count.times == 0) continue;
    const auto trouble = static_cast<Trouble>(i);
    // A host with several routes to its parent may connect over more than one of them.
    const auto level =
        trouble == Trouble::kTwice ? base::LogLevel::kDebug : base::LogLevel::kWarning;
    log.log(level, "while the hosts connected, " + std::to_string(count.times) +
                       (count.times == 1 ? " connection was" : " connections were") +
                       " turned away: " + reason_of(trouble) + " (last from " + count.last_from +
                       ")");
  }
}

}  // namespace ronde::runtime
