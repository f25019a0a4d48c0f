// SPDX-License-Identifier: Apache-2.0
// The engines that this process is opening, and the meetings that wait for one of them.
#include "runtime/job/opening_engine.h"

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/numbers.h"
#include "base/text.h"

namespace ronde::runtime {

using base::Clock;
using base::Code;
using base::Instant;
using base::MutexLock;
using base::Result;
using base::Status;

namespace {

// A meeting for an engine that has not come yet. Once its start is over it is of no use, and goes
// with the next opening at its place.
struct LeftMeeting {
  std::unique_ptr<Met> met;
  Instant until{};
  std::optional<std::int64_t> number;  // of an engine without a name, as the ranks have it
};

struct Place {
  // How many engines without a name every rank has opened. Nothing: this process does not know, as
  // it has opened none yet, or its last start failed, and that of the others may not have.
  std::optional<std::int64_t> opened;
  const OpeningEngine* unnamed = nullptr;        // the engine without a name that is being opened
  bool contested = false;                        // another one came beside it
  bool joining = false;                          // somebody has the turn
  std::multimap<std::string, LeftMeeting> left;  // by the word of their engine
};

struct Register {
  base::Mutex lock;
  std::map<std::string, Place> places RONDE_GUARDED_BY(lock);
};

// Never destroyed: a meeting that nobody has taken must not be left after MPI has ended.
Register& openings() {
  static auto* const kRegister = new Register;
  return *kRegister;
}

// The words: a kind, and the name, or the number where one is known.
constexpr char kNamed = 'n';
constexpr char kNumbered = 'u';
constexpr char kContested = 'c';

bool is_named(const std::string& word) { return word.starts_with(kNamed); }

std::optional<std::int64_t> number_of(const std::string& word) {
  return is_named(word) ? std::nullopt
                        : base::parse_number<std::int64_t>(std::string_view(word).substr(1));
}

// What engines that meet have in common.
std::string key_of(const std::string& word) {
  return is_named(word) ? word : std::string(1, kNumbered);
}

std::string text_of_word(const std::string& word) {
  if (is_named(word)) return "engine '" + word.substr(1) + "'";
  const auto number = number_of(word);
  return "an engine without a name" +
         (number ? " (number " + std::to_string(*number + 1) + ")" : "");
}

constexpr const char* kAdvice =
    ": open the engines of a process in one order on all ranks, or in a thread each, with a name "
    "each (ronde_engine_options.name)";

std::string rank_text(std::size_t rank) { return "rank " + std::to_string(rank); }

Status different(const std::string& one, const std::string& word, const std::string& other,
                 const std::string& other_word) {
  return Status::error(Code::kInvalidArgument, "the ranks open different engines: " + one + " " +
                                                   text_of_word(word) + ", " + other + " " +
                                                   text_of_word(other_word) + kAdvice);
}

Status two_at_once(const std::string& who) {
  return Status::error(Code::kInvalidArgument,
                       who +
                           " two engines without a name at the same time, in two threads: give "
                           "each a name (ronde_engine_options.name)");
}

Result<std::vector<std::string>> words_of_all(Met& met, const std::string& mine, const Clock& clock,
                                              Instant deadline) {
  RONDE_ASSIGN_OR_RETURN(const auto all, met.meeting->allgather(std::as_bytes(std::span(mine)),
                                                                "telling which engine they open",
                                                                {}, clock, deadline));
  std::vector<std::string> words;
  for (const auto& bytes : all) {
    words.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return words;
}

// Which rank came with another engine than rank 0; empty if none has.
std::string difference(const std::vector<std::string>& words) {
  for (std::size_t rank = 1; rank < words.size(); ++rank) {
    if (key_of(words[rank]) == key_of(words.front())) continue;
    return "; " + rank_text(rank) + " came with " + text_of_word(words[rank]) +
           ", and rank 0 with " + text_of_word(words.front()) + kAdvice;
  }
  return "";
}

// Reads the words of all ranks, in their order. Returns the number of an engine without a name,
// where some rank knows it, or the error that all ranks get.
Result<std::optional<std::int64_t>> agreed_number(const std::vector<std::string>& words) {
  std::optional<std::size_t> first;
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    const std::string& word = words[rank];
    const auto culprit = base::narrow<std::int32_t>(rank);
    if (word.starts_with(kContested))
      return two_at_once(rank_text(rank) + " opens").with_rank(culprit);
    if (!is_named(word) && !word.starts_with(kNumbered)) {
      return Status::error(Code::kInternal, rank_text(rank) +
                                                " runs another version of Ronde: use the "
                                                "same libronde.so on every rank")
          .with_rank(culprit);
    }
    if (!number_of(word)) continue;
    if (!first) first = rank;
    if (word == words[*first]) continue;
    return different(rank_text(*first), words[*first], rank_text(rank), word).with_rank(culprit);
  }
  return first ? number_of(words[*first]) : std::nullopt;
}

// Whoever has it joins a meeting of the place.
class Turn {
 public:
  explicit Turn(std::string place) : place_(std::move(place)) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    const MutexLock lock(openings().lock);
    openings().places[place_].joining = false;
  }

 private:
  const std::string place_;
};

}  // namespace

Result<std::unique_ptr<OpeningEngine>> OpeningEngine::begin(std::string name,
                                                            const std::string& place) {
  // A forked child has no part in what its parent opens.
  std::string key = place.empty() ? "" : std::to_string(::getpid()) + " " + place;
  std::unique_ptr<OpeningEngine> engine(new OpeningEngine(std::move(name), std::move(key)));
  if (place.empty() || !engine->name_.empty()) return engine;
  const MutexLock lock(openings().lock);
  Place& here = openings().places[engine->place_];
  if (here.unnamed != nullptr) {
    here.contested = true;
    return two_at_once("this process opens");
  }
  here.unnamed = engine.get();
  here.contested = false;
  return engine;
}

OpeningEngine::~OpeningEngine() {
  if (place_.empty() || !name_.empty()) return;
  const MutexLock lock(openings().lock);
  Place& here = openings().places[place_];
  here.opened = opened_ ? std::optional(number_.value_or(0) + 1) : std::nullopt;
  if (here.unnamed == this) here.unnamed = nullptr;
}

Status OpeningEngine::alone() const {
  return word().starts_with(kContested) ? two_at_once("this process opens") : out_of_step_;
}

void OpeningEngine::opened() { opened_ = true; }

std::string OpeningEngine::word() const {
  if (!name_.empty() || place_.empty()) return kNamed + name_;
  const MutexLock lock(openings().lock);
  const Place& here = openings().places[place_];
  return (here.contested ? kContested : kNumbered) +
         (here.opened ? std::to_string(*here.opened) : "");
}

Result<std::unique_ptr<Met>> OpeningEngine::wait_for_turn(const Clock& clock, Instant deadline) {
  const std::string mine = word();
  for (;;) {
    {
      std::vector<LeftMeeting> over;  // ends after the lock: a meeting closes sockets
      const MutexLock lock(openings().lock);
      Place& here = openings().places[place_];
      for (auto one = here.left.begin(); one != here.left.end();) {
        const auto next = std::next(one);
        if (one->second.until <= clock.now()) {
          over.push_back(std::move(here.left.extract(one).mapped()));
        }
        one = next;
      }
      if (const auto left = here.left.find(key_of(mine)); left != here.left.end()) {
        LeftMeeting taken = std::move(here.left.extract(left).mapped());
        number_ = taken.number;
        // The one that joined it could not tell this one's number.
        if (!is_named(mine) && here.opened && number_.value_or(*here.opened) != *here.opened) {
          out_of_step_ =
              different(rank_text(0), kNumbered + std::to_string(*number_), "this rank", mine);
        }
        return std::move(taken.met);
      }
      if (!std::exchange(here.joining, true)) return std::unique_ptr<Met>();
    }
    if (clock.now() >= deadline) {
      return Status::error(Code::kDeadline,
                           text_of_word(mine) +
                               " waited for another one that this process opens at the same place, "
                               "and that not all ranks have opened");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Result<Met> OpeningEngine::meet(const std::function<Result<Met>()>& join, const Clock& clock,
                                Instant deadline) {
  for (;;) {
    std::optional<Turn> turn;
    if (!place_.empty()) {
      RONDE_ASSIGN_OR_RETURN(auto left, wait_for_turn(clock, deadline));
      if (left != nullptr) return std::move(*left);
      turn.emplace(place_);
    }
    auto met = join();
    if (!met.ok()) return explained(met.status());
    const std::string mine = word();
    const auto words = words_of_all(*met, mine, clock, deadline);
    if (!words.ok()) return explained(words.status());
    strayed_ = difference(*words);
    const auto number = agreed_number(*words);
    if (!number.ok() || (place_.empty() && !strayed_.empty())) {
      met->meeting->close().ignore();
      return number.ok() ? Status::error(Code::kInvalidArgument,
                                         "the ranks open different engines" + strayed_)
                         : number.status();
    }
    number_ = *number;
    if (key_of(mine) == key_of(words->front())) return met;
    const MutexLock lock(openings().lock);
    openings().places[place_].left.emplace(
        key_of(words->front()),
        LeftMeeting{std::make_unique<Met>(std::move(*met)), deadline, *number});
  }
}

Status OpeningEngine::explained(const Status& why) const {
  if (strayed_.empty()) return why;
  const Status more = Status::error(why.code(), why.message() + strayed_);
  return why.rank() ? more.with_rank(*why.rank()) : more;
}

}  // namespace ronde::runtime
