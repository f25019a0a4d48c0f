// SPDX-License-Identifier: Apache-2.0
// The part of class Board that verdicts are made of: which ranks are present, what each of them
// does, and the first failure.
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <new>
#include <string>

#include "collectives/board/board.h"
#include "collectives/board/layout.h"

namespace ronde::collectives {

namespace {

using base::Code;
using base::Result;
using base::Status;

// A claimed failure is published within a few instructions, or never. Between two looks the reader
// yields, so that a writer that was descheduled can finish.
constexpr int kLooksForFailure = 1000;
constexpr int kLooksForActivity = 100;

// Cuts the text to fit, at the beginning of a UTF-8 character.
std::string_view cut(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text;
  std::size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end);
}

}  // namespace

Result<std::uint64_t> process_start_time(std::int32_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const base::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return Status::system("could not open " + path, errno);
  std::array<char, 2048> buffer{};
  const ssize_t size = ::read(file.get(), buffer.data(), buffer.size());
  if (size < 0) return Status::system("could not read " + path, errno);
  const std::string_view text(buffer.data(), static_cast<std::size_t>(size));
  // Field 2 is the program's name in parentheses and may hold anything; the last ')' ends it. What
  // follows is " <field 3> <field 4> ...".
  constexpr int kFieldsToSkip = 22 - 3 + 1;
  std::size_t at = text.rfind(')');
  at = at == std::string_view::npos ? at : at + 1;
  for (int i = 0; i < kFieldsToSkip && at != std::string_view::npos; ++i) {
    at = text.find(' ', at);
    if (at != std::string_view::npos) ++at;
  }
  std::uint64_t ticks = 0;
  if (at == std::string_view::npos ||
      std::from_chars(text.data() + at, text.data() + text.size(), ticks).ec != std::errc()) {
    return Status::error(Code::kSystem, path + " has no start time (field 22)");
  }
  return ticks;
}

void Board::enter() const {
  PresenceWords& words = sections_->presence[index_of_rank(rank_)];
  const std::int32_t pid = ::getpid();
  const Result<std::uint64_t> start_time = process_start_time(pid);
  words.pid.store(pid, std::memory_order_relaxed);
  // Without /proc a rank has its pid alone, and a later process with the same pid passes for it.
  words.start_time.store(start_time.ok() ? *start_time : 0, std::memory_order_relaxed);
  words.state.store(PresenceState::kOpen, std::memory_order_seq_cst);
}

void Board::set_state(std::int32_t rank, PresenceState state) const {
  sections_->presence[index_of_rank(rank)].state.store(state, std::memory_order_seq_cst);
}

// What has closed a board inside another one may still be there on the other.
PresenceState Board::state(std::int32_t rank) const {
  const std::size_t index = index_of_rank(rank);
  const auto own = sections_->presence[index].state.load(std::memory_order_seq_cst);
  if (!place_ || own == PresenceState::kClosed) return own;
  return place_->board.state(place_->positions[index]);
}

// This is a sequence lock without fences: a release store of a word cannot move before the odd
// version, and an acquire load of it cannot move behind the second look at the version. So a reader
// that sees a new word sees the odd version too.
void Board::set_activity(std::string_view text) const {
  if (place_) return place_->board.set_activity(text);
  PresenceWords& words = sections_->presence[index_of_rank(rank_)];
  std::array<std::uint64_t, kActivityBytes / sizeof(std::uint64_t)> value{};
  const std::string_view fitting = cut(text, kActivityBytes);
  std::memcpy(value.data(), fitting.data(), fitting.size());
  const std::uint64_t version = words.activity_version.load(std::memory_order_relaxed);
  words.activity_version.store(version + 1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < value.size(); ++i) {
    words.activity[i].store(value[i], std::memory_order_release);
  }
  words.activity_version.store(version + 2, std::memory_order_release);
}

Presence Board::presence(std::int32_t rank) const {
  if (place_) {
    Presence presence = place_->board.presence(place_->positions[index_of_rank(rank)]);
    presence.state = state(rank);
    return presence;
  }
  const PresenceWords& words = sections_->presence[index_of_rank(rank)];
  Presence presence;
  presence.state = words.state.load(std::memory_order_seq_cst);
  presence.pid = words.pid.load(std::memory_order_relaxed);
  presence.start_time = words.start_time.load(std::memory_order_relaxed);
  std::array<std::uint64_t, kActivityBytes / sizeof(std::uint64_t)> value{};
  // A writer that died in set_activity() leaves a mixed text; no text is better than a wrong one.
  bool whole = false;
  for (int look = 0; look < kLooksForActivity && !whole; ++look) {
    if (look > 0) ::sched_yield();
    const std::uint64_t version = words.activity_version.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < value.size(); ++i) {
      value[i] = words.activity[i].load(std::memory_order_acquire);
    }
    whole = version % 2 == 0 && version == words.activity_version.load(std::memory_order_relaxed);
  }
  if (!whole) return presence;
  std::array<char, kActivityBytes> text;
  std::memcpy(text.data(), value.data(), text.size());
  presence.activity.assign(text.data(), ::strnlen(text.data(), text.size()));
  return presence;
}

bool Board::fail(const FailureRecord& record) const {
  if (place_) {
    try {
      return place_->board.fail(place_->told(record));
    } catch (const std::bad_alloc&) {  // without words of its own rather than not at all
      return place_->board.fail({-1, -1, record.code, record.text, record.place, record.complete});
    }
  }
  return record_failure(record);
}

bool Board::fail_alone(const FailureRecord& record) const {
  return record_failure(place_ ? place_->told(record) : record);
}

bool Board::record_failure(const FailureRecord& record) const {
  FailureWords& words = *sections_->failure;
  FailureState none = FailureState::kNone;
  if (!words.state.compare_exchange_strong(none, FailureState::kClaimed,
                                           std::memory_order_seq_cst)) {
    return false;
  }
  const std::string_view text = cut(record.text, kFailureTextBytes);
  const std::string_view place = cut(record.place, kFailurePlaceBytes);
  words.culprit = record.culprit;
  words.reporter = record.reporter;
  words.code = record.code;
  words.text_size = static_cast<std::uint32_t>(text.size());
  words.place_size = static_cast<std::uint32_t>(place.size());
  std::copy(text.begin(), text.end(), words.text.begin());
  std::copy(place.begin(), place.end(), words.place.begin());
  words.state.store(FailureState::kPublished, std::memory_order_seq_cst);
  ring_all();
  return true;
}

bool Board::failed() const {
  if (sections_->failure->state.load(std::memory_order_seq_cst) != FailureState::kNone) return true;
  return place_ && place_->board.failed();
}

std::optional<FailureRecord> Board::failure() const {
  const FailureWords& words = *sections_->failure;
  FailureState state = words.state.load(std::memory_order_seq_cst);
  for (int look = 0; look < kLooksForFailure && state == FailureState::kClaimed; ++look) {
    ::sched_yield();
    state = words.state.load(std::memory_order_seq_cst);
  }
  if (state == FailureState::kNone) return place_ ? place_->board.failure() : std::nullopt;
  FailureRecord record;
  if (state == FailureState::kClaimed) {
    record.code = Code::kPeerFailed;
    record.text = "a rank of this host ended while it reported a failure; see its own output";
    record.complete = false;
    return record;
  }
  record.culprit = words.culprit;
  record.reporter = words.reporter;
  record.code = words.code;
  record.text.assign(words.text.data(), std::min<std::size_t>(words.text_size, words.text.size()));
  record.place.assign(words.place.data(),
                      std::min<std::size_t>(words.place_size, words.place.size()));
  return record;
}

}  // namespace ronde::collectives
