// SPDX-License-Identifier: Apache-2.0
// The engines that this process is opening, and the meetings that wait for one of them.
#include "runtime/job/opening_engine.h"

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <thread>
#include <utility>

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

struct Place {
  std::int64_t opened = 0;                 // engines without a name that every rank has opened
  const OpeningEngine* unnamed = nullptr;  // ... and the one that is being opened
  bool contested = false;                  // another one came beside it
  bool joining = false;                    // somebody has the turn
  std::multimap<std::string, std::unique_ptr<Met>> left;  // meetings, by the word of their engine
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

// The words: a kind, and the name or the number.
constexpr char kNamed = 'n';
constexpr char kNumbered = 'u';
constexpr char kContested = 'c';

std::string text_of_word(const std::string& word) {
  if (word.starts_with(kNamed)) return "engine '" + base::printable(word.substr(1)) + "'";
  const auto number = base::parse_number<std::int64_t>(std::string_view(word).substr(1));
  return "an engine without a name (number " + std::to_string(number.value_or(0) + 1) + ")";
}

constexpr const char* kAdvice =
    ": open the engines of a process in one order on all ranks, or give each a name "
    "(ronde_engine_options.name)";

Status two_at_once(const std::string& who) {
  return Status::error(Code::kInvalidArgument,
                       who +
                           " two engines without a name at the same time, in two threads: give "
                           "each a name (ronde_engine_options.name)");
}

Result<std::vector<std::string>> words_of_all(Met& met, const std::string& mine, const Clock& clock,
                                              Instant deadline) {
  const auto all = met.meeting->allgather(std::as_bytes(std::span(mine)),
                                          "telling which engine they open", {}, clock, deadline);
  RONDE_RETURN_IF_ERROR(all.status());
  std::vector<std::string> words;
  for (const auto& bytes : *all) {
    words.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return words;
}

// Which rank came with another engine than rank 0; empty if none has.
std::string difference(const std::vector<std::string>& words) {
  for (std::size_t rank = 1; rank < words.size(); ++rank) {
    if (words[rank] == words.front()) continue;
    return "; rank " + std::to_string(rank) + " came with " + text_of_word(words[rank]) +
           ", and rank 0 with " + text_of_word(words.front()) + kAdvice;
  }
  return "";
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

Status check_engines(const std::vector<std::string>& words) {
  const std::string* first = nullptr;
  std::size_t rank_of_first = 0;
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    const std::string& word = words[rank];
    if (word.starts_with(kContested)) {
      return two_at_once("rank " + std::to_string(rank) + " opens")
          .with_rank(base::narrow<std::int32_t>(rank));
    }
    if (!word.starts_with(kNumbered)) continue;
    if (first != nullptr && word != *first) {
      return Status::error(Code::kInvalidArgument, "the ranks open different engines: rank " +
                                                       std::to_string(rank_of_first) + " " +
                                                       text_of_word(*first) + ", rank " +
                                                       std::to_string(rank) + " " +
                                                       text_of_word(word) + kAdvice)
          .with_rank(base::narrow<std::int32_t>(rank));
    }
    if (first == nullptr) rank_of_first = rank;
    first = &word;
  }
  return {};
}

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
  if (opened_) ++here.opened;
  if (here.unnamed == this) here.unnamed = nullptr;
}

Status OpeningEngine::alone() const {
  return word().starts_with(kContested) ? two_at_once("this process opens") : Status();
}

void OpeningEngine::opened() { opened_ = true; }

std::string OpeningEngine::word() const {
  if (!name_.empty() || place_.empty()) return kNamed + name_;
  const MutexLock lock(openings().lock);
  const Place& here = openings().places[place_];
  return (here.contested ? kContested : kNumbered) + std::to_string(here.opened);
}

Result<std::unique_ptr<Met>> OpeningEngine::wait_for_turn(const std::string& mine,
                                                          const Clock& clock, Instant deadline) {
  for (;;) {
    {
      const MutexLock lock(openings().lock);
      Place& here = openings().places[place_];
      if (const auto left = here.left.find(mine); left != here.left.end()) {
        return std::move(here.left.extract(left).mapped());
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
    const std::string mine = word();
    std::optional<Turn> turn;
    if (!place_.empty()) {
      auto left = wait_for_turn(mine, clock, deadline);
      RONDE_RETURN_IF_ERROR(left.status());
      if (*left != nullptr) return std::move(**left);
      turn.emplace(place_);
    }
    auto met = join();
    if (!met.ok()) return explained(met.status());
    // Another one without a name may have come while this one joined.
    const auto words = words_of_all(*met, word(), clock, deadline);
    if (!words.ok()) return explained(words.status());
    strayed_ = difference(*words);
    const Status same = check_engines(*words);
    if (!same.ok() || (place_.empty() && !strayed_.empty())) {
      met->meeting->close().ignore();
      return same.ok() ? Status::error(Code::kInvalidArgument,
                                       "the ranks open different engines" + strayed_)
                       : same;
    }
    if (mine == words->front()) return met;
    const MutexLock lock(openings().lock);
    openings().places[place_].left.emplace(words->front(), std::make_unique<Met>(std::move(*met)));
  }
}

Status OpeningEngine::explained(const Status& why) const {
  if (strayed_.empty()) return why;
  const Status more = Status::error(why.code(), why.message() + strayed_);
  return why.rank() ? more.with_rank(*why.rank()) : more;
}

}  // namespace ronde::runtime
