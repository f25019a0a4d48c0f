// SPDX-License-Identifier: Apache-2.0
// The reception's step: listeners, and strangers between their first byte and their hello.
#include "runtime/meet/reception.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/numbers.h"

namespace ronde::runtime {

using base::FileDescriptor;
using base::Instant;
using base::Status;

namespace {

// How many connections are accepted in one step, so that others are read in between.
constexpr int kAcceptedInATurn = 64;

}  // namespace

Reception::Reception(MeetingListener listener, MeetingSecret secret, std::int32_t ranks)
    : listener_(std::move(listener)),
      secret_(std::move(secret)),
      most_strangers_(std::max(kFewestStrangers, base::narrow<std::size_t>(ranks))) {}

void Reception::watch(std::vector<pollfd>& entries) {
  for (const FileDescriptor& socket : listener_.sockets()) {
    entries.push_back({socket.get(), POLLIN, 0});
  }
  for (const Stranger& stranger : strangers_) entries.push_back({stranger.fd(), POLLIN, 0});
}

Status Reception::step(std::span<const pollfd> entries, Instant now,
                       std::vector<Arrival>& arrivals) {
  const std::size_t listeners = listener_.sockets().size();
  const std::size_t heard = strangers_.size();
  for (std::size_t i = 0; i < heard; ++i) {
    Stranger& stranger = strangers_[i];
    if (entries[listeners + i].revents != 0) read(stranger, arrivals);
    if (!stranger.gone() && now - stranger.since >= kTime) turn_away(stranger, Trouble::kSlow);
  }
  std::erase_if(strangers_, [](const Stranger& one) { return one.gone(); });
  for (std::size_t i = 0; i < listeners; ++i) {
    if (entries[i].revents == 0) continue;
    RONDE_RETURN_IF_ERROR(accept_some(listener_.sockets()[i], now, arrivals));
  }
  return {};
}

Status Reception::accept_some(const FileDescriptor& listener, Instant now,
                              std::vector<Arrival>& arrivals) {
  const auto close_oldest = [this] {
    // One that has proved that it knows the secret would not try again.
    auto oldest = std::ranges::find_if(strangers_, [](const Stranger& one) { return !one.frames; });
    if (oldest == strangers_.end()) oldest = strangers_.begin();
    turn_away(*oldest, Trouble::kCrowd);
    strangers_.erase(oldest);
  };
  for (int i = 0; i < kAcceptedInATurn; ++i) {
    Accepted accepted = listener_.accept(listener);
    if (!accepted.socket.valid()) {
      const int error = errno;
      if (error == EAGAIN) return {};
      if (error != EMFILE && error != ENFILE && error != ENOMEM && error != ENOBUFS) {
        continue;  // the error is about a connection that ended before it was accepted
      }
      if (strangers_.empty()) return Status::system("could not accept another rank", error);
      close_oldest();
      continue;
    }
    RONDE_ASSIGN_OR_RETURN(const auto nonce, make_nonce());
    strangers_.push_back({std::move(accepted.socket),
                          std::move(accepted.from),
                          now,
                          Handshake(Handshake::Role::kRankZero, secret_, nonce),
                          {},
                          0,
                          {}});
    Stranger& stranger = strangers_.back();
    if (accepted.of_another_user) turn_away(stranger, Trouble::kUser);
    // A rank's first message has usually arrived with its connection.
    if (!stranger.gone()) read(stranger, arrivals);
    if (stranger.gone()) strangers_.pop_back();
    if (strangers_.size() > most_strangers_) close_oldest();
  }
  return {};
}

void Reception::read(Stranger& stranger, std::vector<Arrival>& arrivals) {
  if (stranger.frames || read_handshake(stranger)) read_hello(stranger, arrivals);
}

bool Reception::read_handshake(Stranger& stranger) {
  for (;;) {
    const std::size_t wants = stranger.handshake.wants();
    const ssize_t got = ::recv(stranger.socket.get(), stranger.bytes.data() + stranger.size,
                               wants - stranger.size, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
      turn_away(stranger, Trouble::kCut);
      return false;
    }
    stranger.size += base::narrow<std::size_t>(got);
    if (stranger.size < wants) continue;
    stranger.size = 0;
    std::vector<std::byte> answer;
    const auto step = stranger.handshake.take(std::span(stranger.bytes).first(wants), answer);
    // A new connection always has room for an answer.
    if (!answer.empty() &&
        ::send(stranger.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
            static_cast<ssize_t>(answer.size())) {
      turn_away(stranger, Trouble::kCut);
      return false;
    }
    if (step == Handshake::Step::kGoOn) continue;
    if (step == Handshake::Step::kProven) {
      stranger.frames.emplace(LinkEnd{-1, stranger.from, std::move(stranger.socket)});
      return true;
    }
    turn_away(stranger, step == Handshake::Step::kGarbage ? Trouble::kGarbage : Trouble::kSecret);
    return false;
  }
}

void Reception::read_hello(Stranger& stranger, std::vector<Arrival>& arrivals) {
  const auto frame = stranger.frames->receive();
  if (!frame.ok()) return turn_away(stranger, Trouble::kGarbage);
  if (!frame->has_value()) {
    if (stranger.frames->closed()) turn_away(stranger, Trouble::kCut);
    return;
  }
  auto message = decode_meeting_message(**frame);
  auto* const hello = message.ok() ? std::get_if<MeetingHello>(&*message) : nullptr;
  if (hello == nullptr || hello->version != kMeetingVersion) {
    return turn_away(stranger, Trouble::kVersion);
  }
  arrivals.push_back({std::move(*hello), std::move(*stranger.frames)});
  stranger.frames.reset();
}

void Reception::turn_away(Stranger& stranger, Trouble trouble) {
  Count& count = counts_.at(static_cast<std::size_t>(trouble));
  ++count.times;
  count.last_from = stranger.from;
  stranger.socket.reset();
  stranger.frames.reset();
}

const char* Reception::reason_of(Trouble trouble) {
  switch (trouble) {
    case Trouble::kUser:
      return "it was another user's";
    case Trouble::kGarbage:
      return "what was sent is not Ronde's protocol";
    case Trouble::kSecret:
      return "the secret (RONDE_JOB_SECRET) was not this job's";
    case Trouble::kVersion:
      return "another version of Ronde was at the other end";
    case Trouble::kCut:
      return "the other end closed it before a whole hello";
    case Trouble::kSlow:
      return "no whole hello arrived within 5 s";
    case Trouble::kCrowd:
      return "too many others were waiting";
  }
  return "";
}

std::string Reception::text_of(Trouble trouble, const Count& count) {
  return std::to_string(count.times) +
         (count.times == 1 ? " connection was" : " connections were") +
         " turned away: " + reason_of(trouble) + " (last from " + count.last_from + ")";
}

void Reception::report(const base::Log& log) const {
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (counts_.at(i).times == 0) continue;
    log.warning("while the ranks met, " + text_of(static_cast<Trouble>(i), counts_.at(i)));
  }
}

std::string Reception::turned_away() const {
  std::string text;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (counts_.at(i).times == 0) continue;
    text += "; " + text_of(static_cast<Trouble>(i), counts_.at(i));
  }
  return text;
}

}  // namespace ronde::runtime
