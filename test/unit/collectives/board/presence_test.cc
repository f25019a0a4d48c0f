// SPDX-License-Identifier: Apache-2.0
// Which ranks are present, what each of them does, and the first failure: every reader gets a whole
// record or none.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "collectives/board/board.h"
#include "collectives/board/layout.h"
#include "test/unit/collectives/boards.h"

namespace ronde::collectives {
namespace {

TEST(BoardPresence, PresenceIsSeenByTheOthers) {
  const auto boards = make_boards(small(2));
  EXPECT_EQ(boards[1].presence(0).state, PresenceState::kAbsent);
  boards[0].enter();
  const Presence presence = boards[1].presence(0);
  EXPECT_EQ(presence.pid, ::getpid());
  EXPECT_EQ(presence.state, PresenceState::kOpen);
  EXPECT_EQ(presence.start_time, *process_start_time(::getpid()));
  EXPECT_EQ(presence.activity, "");
  EXPECT_EQ(boards[1].presence(1).state, PresenceState::kAbsent);
  boards[0].set_state(PresenceState::kClosing);
  EXPECT_EQ(boards[1].state(0), PresenceState::kClosing);
  boards[1].set_state(0, PresenceState::kDead);
  EXPECT_EQ(boards[0].state(0), PresenceState::kDead);
}

TEST(BoardPresence, StartTimesTellProcessesApart) {
  const auto own = process_start_time(::getpid());
  ASSERT_TRUE(own.ok());
  EXPECT_GT(*own, 0U);
  ::usleep(30000);  // more than a clock tick
  const pid_t child = ::fork();
  if (child == 0) {
    const auto later = process_start_time(::getpid());
    ::_exit(later.ok() && *later > *own ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(process_start_time(child).ok());
}

TEST(BoardPresence, DoingIsCutAtACharacter) {
  const auto boards = make_boards(small(1));
  boards[0].set_activity("waiting for 'fc1/weight'");
  EXPECT_EQ(boards[0].presence(0).activity, "waiting for 'fc1/weight'");
  boards[0].set_activity(std::string(kActivityBytes, 'x'));
  EXPECT_EQ(boards[0].presence(0).activity, std::string(kActivityBytes, 'x'));
  boards[0].set_activity(std::string(kActivityBytes - 1, 'x') +
                         "é");  // two bytes, one of which fits
  EXPECT_EQ(boards[0].presence(0).activity, std::string(kActivityBytes - 1, 'x'));
  boards[0].set_activity("");
  EXPECT_EQ(boards[0].presence(0).activity, "");
}

TEST(BoardPresence, DoingIsNeverTorn) {
  const auto boards = make_boards(small(2));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int i = 0; !stop.load(); ++i) {
      boards[1].set_activity(std::string(kActivityBytes, static_cast<char>('a' + i % 26)));
      for (int pause = 0; pause < 50; ++pause) std::this_thread::yield();
    }
  });
  std::string before;
  int changes = 0;  // as many as come in a while: each takes the writer's turn, which on a busy
                    // machine is rare
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (changes < 5000 && std::chrono::steady_clock::now() < end) {
    const std::string text = boards[0].presence(1).activity;
    EXPECT_TRUE(text.empty() || text == std::string(kActivityBytes, text[0])) << text;
    if (text == before) std::this_thread::yield();
    changes += text != before ? 1 : 0;
    before = text;
    if (HasFailure()) break;
  }
  stop.store(true);
  writer.join();
  EXPECT_GT(changes, 1);
}

FailureRecord record_of(std::int32_t rank) {
  return {.culprit = rank,
          .reporter = rank + 100,
          .code = base::Code::kPeerFailed,
          .text = std::string(500, static_cast<char>('a' + rank)),
          .place = "runtime/agent.cc:" + std::to_string(rank)};
}

TEST(BoardPresence, TheFirstFailureWinsAndRingsEverybody) {
  constexpr std::int32_t kRanks = 8;
  for (int round = 0; round < 200; ++round) {
    const auto boards = make_boards(small(kRanks));
    EXPECT_FALSE(boards[0].failed());
    EXPECT_FALSE(boards[0].failure().has_value());
    std::vector<std::thread> threads;
    std::atomic<int> winners{0};
    for (std::int32_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const Board& board = boards[static_cast<std::size_t>(rank)];
        // Half of the ranks report nothing and read the failure as soon as there is one.
        while (rank % 2 == 1 && !board.failed()) std::this_thread::yield();
        if (rank % 2 == 0) winners += board.fail(record_of(rank)) ? 1 : 0;
        const auto seen = board.failure();
        ASSERT_TRUE(seen.has_value());
        if (!seen->complete) return;  // the claimer did not run for a long time
        const FailureRecord expected = record_of(seen->culprit);
        EXPECT_EQ(seen->reporter, expected.reporter);
        EXPECT_EQ(seen->code, expected.code);
        EXPECT_EQ(seen->text, expected.text);
        EXPECT_EQ(seen->place, expected.place);
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(winners.load(), 1);
    EXPECT_TRUE(boards[3].failed());
    EXPECT_TRUE(boards[3].failure()->complete);
    for (std::int32_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(boards[0].doorbell(rank).rings(), 1U);
    }
  }
}

TEST(BoardPresence, LongFailuresAreCutAtACharacter) {
  const auto boards = make_boards(small(1));
  FailureRecord record;
  record.text = std::string(kFailureTextBytes - 1, 'x') + "é and more";
  record.place = std::string(200, 'p');
  ASSERT_TRUE(boards[0].fail(record));
  EXPECT_EQ(boards[0].failure()->text, std::string(kFailureTextBytes - 1, 'x'));
  EXPECT_EQ(boards[0].failure()->place, std::string(kFailurePlaceBytes, 'p'));
}

TEST(BoardPresence, AFailureWhoseReporterDiedIsNotHidden) {
  const BoardGeometry geometry = small(2);
  auto memory = *SharedMemory::create_heap(Board::size_of(geometry));
  ASSERT_TRUE(Board::format(*memory, geometry).ok());
  const auto board = *Board::attach(memory, 0, *make_event_fds(2));
  const BoardSections sections = lay_out(geometry, memory->bytes().data());
  sections.failure->state.store(FailureState::kClaimed);
  EXPECT_TRUE(board.failed());
  const auto record = board.failure();
  ASSERT_TRUE(record.has_value());
  EXPECT_FALSE(record->complete);
  EXPECT_FALSE(record->text.empty());
  EXPECT_FALSE(board.fail(record_of(1)));
}

TEST(BoardPresence, AFailureOfOneProcessIsReadByAnother) {
  const auto boards = make_boards(small(2), /*heap=*/false);
  run_processes(2, [&](std::int32_t rank) {
    const Board& board = boards[static_cast<std::size_t>(rank)];
    if (rank == 1) return board.fail(record_of(1));
    pollfd entry{board.doorbell(0).event_fd(), POLLIN, 0};
    board.doorbell(0).arm();
    if (!board.failed() && ::poll(&entry, 1, kHangMs) != 1) return false;
    const auto record = board.failure();
    return record.has_value() && record->text == record_of(1).text;
  });
}

}  // namespace
}  // namespace ronde::collectives
