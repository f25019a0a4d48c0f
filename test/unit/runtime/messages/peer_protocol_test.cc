// SPDX-License-Identifier: Apache-2.0
// Every interleaving of how two ranks meet for messages, delayed stores included, and proof that
// the search notices when a rule of the protocol is broken.
#include "runtime/messages/peer_protocol.h"

#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "test/support/interleaving.h"

namespace ronde::test {
namespace {

constexpr std::uint64_t kMostPeerStates = 20'000'000;

enum class PeerFault {
  kNone,
  kRelaxedWritten,  // the count of records is not seq_cst
  kRelaxedAwaits,   // saying that one must be rung is not seq_cst
  kNoRing,          // a sender does not ring
  kNoSecondLook,    // a receiver sleeps after it has said so, without a look
  kRelaxedReading,  // saying that one copies is not seq_cst
  kRelaxedRevoked,  // taking back is not seq_cst
  kDoesNotWait,     // whoever takes back does not wait for the end of a copy
  kDoesNotAsk,      // a receiver copies whatever was taken back
  kAsksBefore       // whoever copies by a call of the system asks before it, not after
};

struct PeerBoard {
  Value written = 0;
  Value awaits = 0;
  Value rung = 0;
  Value revoked = 0;
  Value reading = 0;
  Value memory = 0;  // 1: the sender's message; 0: it is the caller's again
};

class ModelPeerWords {
 public:
  ModelPeerWords(ModelThread& thread, const PeerBoard& board, PeerFault fault)
      : thread_(thread), board_(board), fault_(fault) {}

  void write(Value count) const { store(board_.written, count, PeerFault::kRelaxedWritten); }
  [[nodiscard]] Value written() const { return thread_.load(board_.written); }
  [[nodiscard]] bool awaits() const { return thread_.load(board_.awaits) != 0; }
  void set_awaits(bool awaits) const {
    store(board_.awaits, awaits ? 1 : 0, PeerFault::kRelaxedAwaits);
  }
  void ring() const {
    if (fault_ != PeerFault::kNoRing) thread_.store(board_.rung, 1);
  }
  void sleep() const {
    thread_.wait_while(board_.rung, 0, TimeOut::kNever);
    thread_.exchange(board_.rung, 0);
  }
  [[nodiscard]] bool revoked() const {
    return fault_ != PeerFault::kDoesNotAsk && thread_.load(board_.revoked) != 0;
  }
  void revoke_word() const { store(board_.revoked, 1, PeerFault::kRelaxedRevoked); }
  [[nodiscard]] bool reading() const {
    return fault_ != PeerFault::kDoesNotWait && thread_.load(board_.reading) != 0;
  }
  void set_reading(bool reading) const {
    store(board_.reading, reading ? 1 : 0, PeerFault::kRelaxedReading);
  }
  void pause() const { thread_.wait_while(board_.reading, 1, TimeOut::kNever); }

  [[nodiscard]] bool is_whole() const { return thread_.load(board_.memory) == 1; }
  void reuse_memory() const { thread_.store_later(board_.memory, 0); }

 private:
  void store(Value word, Value value, PeerFault relaxed) const {
    if (fault_ == relaxed) {
      thread_.store_later(word, value);
    } else {
      thread_.store(word, value);
    }
  }

  ModelThread& thread_;
  const PeerBoard& board_;
  const PeerFault fault_;
};

using PeerBody = std::function<void(ModelThread&, ModelPeerWords&)>;

Interleaving::Report explore_peers(PeerFault fault, const PeerBody& sender,
                                   const PeerBody& receiver) {
  Interleaving model;
  const auto board = std::make_shared<PeerBoard>();
  board->written = model.add_word("written", 0);
  board->awaits = model.add_word("awaits", 0);
  board->rung = model.add_word("rung", 0);
  board->revoked = model.add_word("revoked", 0);
  board->reading = model.add_word("reading", 0);
  board->memory = model.add_word("memory", 1);
  const auto add = [&](const char* name, const PeerBody& body) {
    model.add_thread(name, [board, fault, body](ModelThread& thread) {
      ModelPeerWords words(thread, *board, fault);
      body(thread, words);
    });
  };
  add("sender", sender);
  add("receiver", receiver);
  model.when_quiet([](const ModelView& view) -> std::optional<std::string> {
    for (const bool finished : view.finished) {
      if (!finished) return "a rank sleeps for ever";
    }
    return std::nullopt;
  });
  const Interleaving::Report report = model.explore(kMostPeerStates);
  std::cout << report.states << " states, " << report.quiet << " quiet\n";
  return report;
}

// Messages that are sent, and received by a rank that may or may not want to be rung in between.
Interleaving::Report explore_records(PeerFault fault) {
  constexpr Value kRecords = 3;
  return explore_peers(
      fault,
      [](ModelThread&, ModelPeerWords& words) {
        for (Value record = 1; record <= kRecords; ++record) {
          words.write(record);
          runtime::PeerProtocol(words).announce(false);
        }
      },
      [fault](ModelThread& thread, ModelPeerWords& words) {
        for (Value record = 1; record <= kRecords; ++record) {
          while (words.written() < record) {
            runtime::PeerProtocol(words).want();
            if (fault != PeerFault::kNoSecondLook && words.written() >= record) break;
            words.sleep();
          }
          // It awaits nothing until its next receive.
          if (thread.choose(2) == 1) words.set_awaits(false);
        }
      });
}

// An offer that is copied in two pieces by a thread, while its sender takes it back.
Interleaving::Report explore_copy(PeerFault fault) {
  return explore_peers(
      fault,
      [](ModelThread&, ModelPeerWords& words) {
        runtime::PeerProtocol(words).revoke();
        words.reuse_memory();
      },
      [](ModelThread& thread, ModelPeerWords& words) {
        for (int piece = 0; piece < 2; ++piece) {
          const bool copied = runtime::PeerProtocol(words).read(
              [&] { thread.require(words.is_whole(), "memory is read that was taken back"); });
          if (!copied) return;
        }
      });
}

// The same by calls of the system.
Interleaving::Report explore_call(PeerFault fault) {
  return explore_peers(
      fault,
      [](ModelThread&, ModelPeerWords& words) {
        runtime::PeerProtocol(words).revoke();
        words.reuse_memory();
      },
      [fault](ModelThread& thread, ModelPeerWords& words) {
        const bool before = words.revoked();
        const bool whole = words.is_whole();
        const bool counts = fault == PeerFault::kAsksBefore ? !before : !words.revoked();
        if (counts) thread.require(whole, "a copy counts that is not whole");
      });
}

void expect_right(const Interleaving::Report& report) {
  EXPECT_TRUE(report.failure.empty()) << report.failure;
  EXPECT_TRUE(report.complete);
  EXPECT_GT(report.quiet, 0U);
}

TEST(PeerProtocol, WakesWhoeverAwaitsInEveryInterleaving) {
  expect_right(explore_records(PeerFault::kNone));
}

TEST(PeerProtocol, ReadsNothingThatWasTakenBack) {
  expect_right(explore_copy(PeerFault::kNone));
  expect_right(explore_call(PeerFault::kNone));
}

TEST(PeerProtocol, HasNoRuleTooMany) {
  for (const PeerFault fault : {PeerFault::kRelaxedWritten, PeerFault::kRelaxedAwaits,
                                PeerFault::kNoRing, PeerFault::kNoSecondLook}) {
    EXPECT_FALSE(explore_records(fault).failure.empty()) << static_cast<int>(fault);
  }
  for (const PeerFault fault : {PeerFault::kRelaxedReading, PeerFault::kRelaxedRevoked,
                                PeerFault::kDoesNotWait, PeerFault::kDoesNotAsk}) {
    EXPECT_FALSE(explore_copy(fault).failure.empty()) << static_cast<int>(fault);
  }
  EXPECT_FALSE(explore_call(PeerFault::kAsksBefore).failure.empty());
}

}  // namespace
}  // namespace ronde::test
