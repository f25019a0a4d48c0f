// SPDX-License-Identifier: Apache-2.0
// Every interleaving of the lines of a prepared operation in small worlds, delayed stores and
// deaths included, and proof that the search notices when a rule of the protocol is broken.
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
  kRefuserGoesOn     // a rank that has refused a call writes the next before all have agreed
};

struct World {
  int ranks = 2;
  int calls = 3;
  bool broadcasts = false;
  bool dies = false;     // rank 0 may end at any step
  bool refuses = false;  // each rank may refuse each call (runtime/lines/quick_calls.h)
  Fault fault = Fault::kNone;
};

struct RankWordsOf {
  Value sequence[2];
  Value bytes[2];
  Value sleeps;
  Value rung;        // a ring that nobody has seen yet
  Value refused[2];  // beside the bytes
  Value agreed;      // the last call for which this rank has come to the ordinary way
};

struct Board {
  std::vector<RankWordsOf> ranks;
  Value failed;
};

// The first call is 255, so that numbers wrap around.
constexpr Value kBefore = 254;

class ModelWords {
 public:
  using Sequence = Value;
  ModelWords(ModelThread& thread, const Board& board, const World& world, int rank)
      : thread_(thread), board_(board), world_(world), rank_(rank) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return world_.ranks; }
  [[nodiscard]] Value sequence(int rank, int line) const {
    return thread_.load(of(rank).sequence[line]);
  }
  void post(int line, Value call) const {
    if (world_.fault == Fault::kRelaxedPost) {
      thread_.store_later(mine().sequence[line], call);
    } else {
      thread_.store(mine().sequence[line], call);
    }
  }
  [[nodiscard]] bool sleeps(int rank) const { return thread_.load(of(rank).sleeps) != 0; }
  void set_sleeps(bool sleeps) const {
    const Value value = sleeps ? 1 : 0;
    if (world_.fault == Fault::kRelaxedSleeps) {
      thread_.store_later(mine().sleeps, value);
    } else {
      thread_.store(mine().sleeps, value);
    }
  }
  void ring(int rank) const {
    if (world_.fault != Fault::kNoRing) thread_.store(of(rank).rung, 1);
  }
  // The worst: to sleep at once.
  [[nodiscard]] bool watch() const { return false; }
  void sleep() const {
    thread_.wait_while(mine().rung, 0, TimeOut::kNever);
    thread_.exchange(mine().rung, 0);
  }
  [[nodiscard]] bool over() const { return world_.dies && thread_.load(board_.failed) != 0; }

  void write(int line, Value value) const { thread_.store_later(mine().bytes[line], value); }
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
  [[nodiscard]] bool dies() const {
    if (!world_.dies || rank_ != 0 || thread_.choose(2) == 0) return false;
    thread_.store(board_.failed, 1);
    for (int rank = 1; rank < world_.ranks; ++rank) thread_.store(of(rank).rung, 1);
    return true;
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
};

using Protocol = collectives::LineProtocol<ModelWords>;

Value value_of(Value call, int rank) { return static_cast<Value>(call * 8 + rank); }

// False where the rank or the job has come to its end.
bool give(ModelWords& words, Protocol& protocol, Value call, Fault fault) {
  const int line = Protocol::line_of(call);
  if (fault != Fault::kBytesAfterPost) words.write(line, value_of(call, words.rank()));
  if (words.dies()) return false;
  protocol.post(call);
  if (fault == Fault::kBytesAfterPost) words.write(line, value_of(call, words.rank()));
  return !words.dies();
}

bool reduce(ModelThread& thread, ModelWords& words, Protocol& protocol, Value call,
            const World& world) {
  if (!give(words, protocol, call, world.fault)) return false;
  if (!protocol.await([&] { return protocol.all_have_posted(call); })) return false;
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
    if (waits && !protocol.await([&] { return protocol.may_write(call); })) return false;
    return give(words, protocol, call, world.fault);
  }
  if (!protocol.await([&] { return protocol.has_posted(0, call); })) return false;
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

Interleaving::Report explore(const World& world) {
  Interleaving model;
  const auto board = std::make_shared<Board>();
  board->failed = model.add_word("failed", 0);
  for (int rank = 0; rank < world.ranks; ++rank) {
    const std::string name = std::to_string(rank);
    board->ranks.push_back(
        {{model.add_word("even" + name, kBefore),
          model.add_word("odd" + name, static_cast<Value>(kBefore - 1))},
         {model.add_word("even bytes" + name, 0), model.add_word("odd bytes" + name, 0)},
         model.add_word("sleeps" + name, 0),
         model.add_word("rung" + name, 0),
         {model.add_word("even refused" + name, 0), model.add_word("odd refused" + name, 0)},
         model.add_word("agreed" + name, kBefore)});
  }
  for (int rank = 0; rank < world.ranks; ++rank) {
    model.add_thread("rank " + std::to_string(rank), [board, world, rank](ModelThread& thread) {
      ModelWords words(thread, *board, world, rank);
      Protocol protocol(words);
      Value last = kBefore;
      for (int i = 1; i <= world.calls; ++i) {
        const auto call = static_cast<Value>(kBefore + i);
        if (world.refuses) {
          if (!try_to_reduce(thread, words, protocol, call, last, world)) return;
          continue;
        }
        const auto run = world.broadcasts ? broadcast : reduce;
        if (!run(thread, words, protocol, call, world)) return;
      }
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

TEST(LineProtocol, EndsWhereARankDies) {
  expect_right({.ranks = 2, .calls = 3, .dies = true});
  expect_right({.ranks = 2, .calls = 3, .broadcasts = true, .dies = true});
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
}

}  // namespace
}  // namespace ronde::test
