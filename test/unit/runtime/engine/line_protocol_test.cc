// SPDX-License-Identifier: Apache-2.0
// Every interleaving of the lines of a prepared operation in small worlds, delayed stores and
// deaths, joins
// and deadlines included, and proof that the search notices when a rule of the protocol is broken.
#include "collectives/in_host/line_protocol.h"

#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/interleaving.h"

namespace ronde::test {
namespace {

constexpr std::uint64_t kMostStates = 20'000'000;

enum class Fault {
  kNone,
  kRelaxedPost,      // a post is not seq_cst
  kRelaxedSleeps,    // saying that one sleeps is not seq_cst
  kNoRing,           // a poster does not ring
  kBytesAfterPost,   // what a line says is written after its number
  kRootDoesNotWait,  // the root of a broadcast writes whatever the others have read
  kRefuserGoesOn,    // a rank that has refused a call writes the next before all have agreed
  kNoRingAtEnd,      // a rank that gives up rings nobody
  kKeepsSilent,      // a rank that hears of an end does not give up
  kKeepsPost         // a rank that is late does not take back its post
};

// What one rank may do.
enum class End {
  kNone,
  kDies,   // between any two steps; the engines of the others see it and fail the job
  kJoins,  // instead of any call
  kLate    // in any wait
};

struct World {
  int ranks = 2;
  int calls = 3;
  bool broadcasts = false;
  bool refuses = false;  // each rank may refuse each call (runtime/lines/quick_calls.h)
  End end = End::kNone;
  int ends = 0;          // which rank
  bool at_once = false;  // it does, in its first call: fewer states
  Fault fault = Fault::kNone;
};

struct RankWordsOf {
  Value sequence[2];
  Value bytes[2];
  Value sleeps;
  Value ended;
  Value rung;        // a ring that nobody has seen yet
  Value refused[2];  // beside the bytes
  Value agreed;      // the last call for which this rank has come to the ordinary way
};

struct Board {
  std::vector<RankWordsOf> ranks;
  Value failed;
  Value gone;  // a rank has given up
};

// The first call is 255, so that numbers wrap around.
constexpr Value kBefore = 254;

class ModelWords {
 public:
  struct Death {};
  // The ranks of which this one waits for that call.
  struct Awaited {
    int first = 0;
    int last = -1;
    Value call = 0;
  };

  using Sequence = Value;
  ModelWords(ModelThread& thread, const Board& board, const World& world, int rank)
      : thread_(thread), board_(board), world_(world), rank_(rank) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return world_.ranks; }
  [[nodiscard]] Value sequence(int rank, int line) const {
    may_die();
    return thread_.load(of(rank).sequence[line]);
  }
  void post(int line, Value call) const {
    if (late_ && world_.fault == Fault::kKeepsPost) return;
    may_die();
    if (world_.fault == Fault::kRelaxedPost) {
      thread_.store_later(mine().sequence[line], call);
    } else {
      thread_.store(mine().sequence[line], call);
    }
  }
  [[nodiscard]] bool sleeps(int rank) const {
    may_die();
    return thread_.load(of(rank).sleeps) != 0;
  }
  void set_sleeps(bool sleeps) const {
    may_die();
    const Value value = sleeps ? 1 : 0;
    if (world_.fault == Fault::kRelaxedSleeps) {
      thread_.store_later(mine().sleeps, value);
    } else {
      thread_.store(mine().sleeps, value);
    }
  }
  void ring(int rank) const {
    may_die();
    if (world_.fault == Fault::kNoRingAtEnd && ended_) return;
    if (world_.fault != Fault::kNoRing) thread_.store(of(rank).rung, 1);
  }
  // The worst: to sleep at once.
  [[nodiscard]] bool watch() const { return false; }
  void sleep() const {
    may_die();
    thread_.wait_while(mine().rung, 0, TimeOut::kNever);
    thread_.exchange(mine().rung, 0);
  }
  [[nodiscard]] bool over() {
    if (world_.end == End::kNone) return false;
    if (world_.end == End::kDies) return thread_.load(board_.failed) != 0;
    if (may(End::kLate)) return late_ = true;
    for (int rank = awaited_.first; rank <= awaited_.last; ++rank) {
      if (rank == rank_ || sequence(rank, awaited_.call % 2) == awaited_.call) continue;
      if (thread_.load(of(rank).ended) != 0) return true;
    }
    return false;
  }
  void set_ended() {
    thread_.store(mine().ended, 1);
    ended_ = true;
  }
  void await(Awaited awaited) { awaited_ = awaited; }
  // Whether this rank does that now.
  [[nodiscard]] bool may(End end) const {
    if (world_.end != end || rank_ != world_.ends) return false;
    return world_.at_once || thread_.choose(2) != 0;
  }
  [[nodiscard]] bool late() const { return late_; }
  void set_gone() const { thread_.store(board_.gone, 1); }
  [[nodiscard]] bool is_gone() const {
    return world_.end == End::kLate && thread_.load(board_.gone) != 0;
  }
  [[nodiscard]] bool silent() const { return world_.fault == Fault::kKeepsSilent && !late_; }

  void write(int line, Value value) const {
    may_die();
    thread_.store_later(mine().bytes[line], value);
  }
  [[nodiscard]] Value read(int rank, int line) const { return thread_.load(of(rank).bytes[line]); }
  void set_refused(int line, bool refused) const {
    thread_.store_later(mine().refused[line], refused ? 1 : 0);
  }
  [[nodiscard]] bool refused(int rank, int line) const {
    return thread_.load(of(rank).refused[line]) != 0;
  }
  // The ordinary way, to which all ranks come: `last` is the call for which they did so before.
  void agree(Value last, Value call) const {
    thread_.store(mine().agreed, call);
    for (int rank = 0; rank < world_.ranks; ++rank) {
      if (rank != rank_) thread_.wait_while(of(rank).agreed, last, TimeOut::kNever);
    }
  }
  // The engines of the others see the end of a process, and fail the job.
  void may_die() const {
    if (!may(End::kDies)) return;
    thread_.store(board_.failed, 1);
    for (int rank = 0; rank < world_.ranks; ++rank) {
      if (rank != rank_) thread_.store(of(rank).rung, 1);
    }
    throw Death();
  }

 private:
  [[nodiscard]] const RankWordsOf& of(int rank) const {
    return board_.ranks[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] const RankWordsOf& mine() const { return of(rank_); }

  ModelThread& thread_;
  const Board& board_;
  const World& world_;
  const int rank_;
  Awaited awaited_;
  bool late_ = false;
  bool ended_ = false;
};

using Protocol = collectives::LineProtocol<ModelWords>;

Value value_of(Value call, int rank) { return static_cast<Value>(call * 8 + rank); }

void give(ModelWords& words, Protocol& protocol, Value call, Fault fault) {
  const int line = Protocol::line_of(call);
  if (fault != Fault::kBytesAfterPost) words.write(line, value_of(call, words.rank()));
  protocol.post(call);
  if (fault == Fault::kBytesAfterPost) words.write(line, value_of(call, words.rank()));
}

// False where the operation has ended.
template <typename Ready>
bool await(ModelWords& words, Protocol& protocol, Value call, bool has_posted, const Ready& ready) {
  if (protocol.await(ready)) return true;
  if (!words.silent()) protocol.give_up(call, has_posted && words.late());
  if (words.late()) words.set_gone();
  return false;
}

bool reduce(ModelThread& thread, ModelWords& words, Protocol& protocol, Value call,
            const World& world) {
  const bool gone = words.is_gone();
  give(words, protocol, call, world.fault);
  words.await({0, world.ranks - 1, call});
  if (!await(words, protocol, call, true, [&] { return protocol.all_have_posted(call); })) {
    return false;
  }
  thread.require(!gone, "a rank ends a call that another one had given up before it came");
  for (int rank = 0; rank < world.ranks; ++rank) {
    if (rank == words.rank()) continue;
    thread.require(words.read(rank, Protocol::line_of(call)) == value_of(call, rank),
                   "a rank reads the bytes of another call");
  }
  return true;
}

bool broadcast(ModelThread& thread, ModelWords& words, Protocol& protocol, Value call,
               const World& world) {
  if (words.rank() == 0) {
    const bool waits = world.fault != Fault::kRootDoesNotWait;
    words.await({1, world.ranks - 1, static_cast<Value>(call - 2)});
    if (waits && !await(words, protocol, call, false, [&] { return protocol.may_write(call); })) {
      return false;
    }
    give(words, protocol, call, world.fault);
    return true;
  }
  words.await({0, 0, call});
  if (!await(words, protocol, call, false, [&] { return protocol.has_posted(0, call); })) {
    return false;
  }
  thread.require(words.read(0, Protocol::line_of(call)) == value_of(call, 0),
                 "a rank reads the bytes of another call");
  protocol.post(call);
  return true;
}

// Calls that any rank may refuse, until the first one that some rank does; then all agree, and the
// line begins anew.
bool try_to_reduce(ModelThread& thread, ModelWords& words, Protocol& protocol, Value call,
                   Value& last, const World& world) {
  const int line = Protocol::line_of(call);
  bool refuses = thread.choose(2) == 1;
  words.set_refused(line, refuses);
  if (!refuses) words.write(line, value_of(call, words.rank()));
  protocol.post(call);
  if (refuses && world.fault == Fault::kRefuserGoesOn) {
    words.write(1 - line, value_of(static_cast<Value>(call + 1), words.rank()));
  }
  if (!refuses) {
    if (!protocol.await([&] { return protocol.all_have_posted(call); })) return false;
    for (int rank = 0; rank < world.ranks; ++rank) refuses |= words.refused(rank, line);
    for (int rank = 0; rank < world.ranks && !refuses; ++rank) {
      if (rank == words.rank()) continue;
      thread.require(words.read(rank, line) == value_of(call, rank),
                     "a rank reads the bytes of another call");
    }
  }
  if (refuses) words.agree(std::exchange(last, call), call);
  return true;
}

void run_calls(ModelThread& thread, const Board& board, const World& world, int rank) try {
  ModelWords words(thread, board, world, rank);
  Protocol protocol(words);
  Value last = kBefore;
  for (int i = 1; i <= world.calls; ++i) {
    const auto call = static_cast<Value>(kBefore + i);
    if (world.refuses) {
      if (!try_to_reduce(thread, words, protocol, call, last, world)) return;
      continue;
    }
    if (words.may(End::kJoins)) return protocol.give_up(call, false);
    const auto run = world.broadcasts ? broadcast : reduce;
    if (!run(thread, words, protocol, call, world)) return;
  }
} catch (const ModelWords::Death&) {
}

Interleaving::Report explore(const World& world) {
  Interleaving model;
  const auto board = std::make_shared<Board>();
  board->failed = model.add_word("failed", 0);
  board->gone = model.add_word("gone", 0);
  for (int rank = 0; rank < world.ranks; ++rank) {
    const std::string name = std::to_string(rank);
    board->ranks.push_back(
        {{model.add_word("even" + name, kBefore),
          model.add_word("odd" + name, static_cast<Value>(kBefore - 1))},
         {model.add_word("even bytes" + name, 0), model.add_word("odd bytes" + name, 0)},
         model.add_word("sleeps" + name, 0),
         model.add_word("ended" + name, 0),
         model.add_word("rung" + name, 0),
         {model.add_word("even refused" + name, 0), model.add_word("odd refused" + name, 0)},
         model.add_word("agreed" + name, kBefore)});
  }
  for (int rank = 0; rank < world.ranks; ++rank) {
    model.add_thread("rank " + std::to_string(rank), [board, world, rank](ModelThread& thread) {
      run_calls(thread, *board, world, rank);
    });
  }
  model.when_quiet([](const ModelView& view) -> std::optional<std::string> {
    for (const bool finished : view.finished) {
      if (!finished) return "a rank sleeps for ever";
    }
    return std::nullopt;
  });
  const Interleaving::Report report = model.explore(kMostStates);
  std::cout << report.states << " states, " << report.quiet << " quiet\n";
  return report;
}

void expect_right(const World& world) {
  const Interleaving::Report report = explore(world);
  EXPECT_TRUE(report.failure.empty()) << report.failure;
  EXPECT_TRUE(report.complete);
  EXPECT_GT(report.quiet, 0U);
}

TEST(LineProtocol, ReducesInEveryInterleaving) {
  expect_right({.ranks = 2, .calls = 4});
  expect_right({.ranks = 3, .calls = 1});
}

TEST(LineProtocol, BroadcastsInEveryInterleaving) {
  expect_right({.ranks = 2, .calls = 4, .broadcasts = true});
  expect_right({.ranks = 3, .calls = 2, .broadcasts = true});
}

TEST(LineProtocol, EndsWhereARankDiesBetweenAnyTwoSteps) {
  for (const int ends : {0, 1}) {
    expect_right({.ranks = 2, .calls = 3, .end = End::kDies, .ends = ends});
    expect_right({.ranks = 2, .calls = 3, .broadcasts = true, .end = End::kDies, .ends = ends});
  }
}

TEST(LineProtocol, EndsWhereARankJoinsOrIsLate) {
  for (const End end : {End::kJoins, End::kLate}) {
    for (const int ends : {0, 1}) {
      expect_right({.ranks = 2, .calls = 3, .end = end, .ends = ends});
      expect_right({.ranks = 2, .calls = 3, .broadcasts = true, .end = end, .ends = ends});
    }
    expect_right({.ranks = 3, .calls = 1, .end = end, .ends = 1});
  }
  // The third rank waits for the root, which waits for the one that has joined.
  expect_right(
      {.ranks = 3, .calls = 3, .broadcasts = true, .end = End::kJoins, .ends = 1, .at_once = true});
}

TEST(LineProtocol, IsLeftByAllOrByNoneWhereRanksRefuse) {
  expect_right({.ranks = 2, .calls = 3, .refuses = true});
}

TEST(LineProtocol, HasNoRuleTooMany) {
  for (const Fault fault :
       {Fault::kRelaxedPost, Fault::kRelaxedSleeps, Fault::kNoRing, Fault::kBytesAfterPost}) {
    EXPECT_FALSE(explore({.ranks = 2, .calls = 2, .fault = fault}).failure.empty())
        << static_cast<int>(fault);
  }
  const World careless{
      .ranks = 2, .calls = 4, .broadcasts = true, .fault = Fault::kRootDoesNotWait};
  EXPECT_FALSE(explore(careless).failure.empty());
  const World hasty{.ranks = 2, .calls = 3, .refuses = true, .fault = Fault::kRefuserGoesOn};
  EXPECT_FALSE(explore(hasty).failure.empty());
  const World unheard{.ranks = 2, .calls = 2, .end = End::kLate, .fault = Fault::kNoRingAtEnd};
  EXPECT_FALSE(explore(unheard).failure.empty());
  const World kept{.ranks = 2, .calls = 2, .end = End::kLate, .fault = Fault::kKeepsPost};
  EXPECT_FALSE(explore(kept).failure.empty());
  const World silent{.ranks = 3,
                     .calls = 3,
                     .broadcasts = true,
                     .end = End::kJoins,
                     .ends = 1,
                     .at_once = true,
                     .fault = Fault::kKeepsSilent};
  EXPECT_FALSE(explore(silent).failure.empty());
}

}  // namespace
}  // namespace ronde::test
