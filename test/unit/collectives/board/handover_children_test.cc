// SPDX-License-Identifier: Apache-2.0
// Where there are no pidfds the connections of the handover tell who has died, also while a
// child that the dead process has forked lives on.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "collectives/board/board.h"
#include "collectives/board/handover.h"
#include "test/unit/collectives/boards.h"

namespace ronde::collectives {

using base::FileDescriptor;

namespace {

constexpr auto kHandoverLimit = std::chrono::seconds(20);
const std::vector<int> kTwoRanks{40, 41};

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends.data()), 0); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    for (const int end : ends) ::close(end);
  }
  std::array<int, 2> ends{};
};

// Forks a child that keeps what fork() has copied until the test is over, as a worker of a data
// loader does.
bool leave_child(const Pipe& until_closed) {
  const pid_t child = ::fork();
  if (child != 0) return child > 0;
  ::close(until_closed.ends[1]);
  char byte = 0;
  static_cast<void>(!::read(until_closed.ends[0], &byte, 1));
  ::_exit(0);
}

// A process that takes part in a handover and ends.
class Peer {
 public:
  explicit Peer(const std::function<bool()>& take_part) : pid_(::fork()) {
    if (pid_ == 0) ::_exit(take_part() ? 0 : 1);
  }
  bool succeeded() const {
    int status = -1;
    return ::waitpid(pid_, &status, 0) == pid_ && status == 0;
  }

 private:
  const pid_t pid_;
};

base::Result<BoardHandover> join(const std::string& name) {
  const base::SteadyClock clock;
  return receive_board(name, 1, kTwoRanks, clock, clock.after(kHandoverLimit));
}

base::Result<BoardHandover> lead(HandoverListener& listener) {
  const base::SteadyClock clock;
  const BoardGeometry geometry{.ranks = 2, .announce_bytes = 64, .decision_bytes = 64};
  std::shared_ptr<SharedMemory> memory = *SharedMemory::create_memfd(Board::size_of(geometry));
  EXPECT_TRUE(Board::format(*memory, geometry).ok());
  return listener.hand_over(memory, kTwoRanks, clock, clock.after(kHandoverLimit));
}

bool ended(const FileDescriptor& connection) {
  pollfd entry{connection.get(), POLLIN, 0};
  return ::poll(&entry, 1, kHangMs) == 1;
}

TEST(HandoverChildren, AChildOfARankDoesNotHideItsEnd) {
  auto listener = HandoverListener::open();
  ASSERT_TRUE(listener.ok());
  const Pipe end_of_test;
  const Peer rank([&] {
    const auto board = join(listener->name());
    return board.ok() && leave_child(end_of_test);
  });
  const auto board = lead(*listener);
  ASSERT_TRUE(board.ok()) << board.status().to_string();
  EXPECT_TRUE(rank.succeeded());
  EXPECT_TRUE(ended(board->connections.at(1)));
}

TEST(HandoverChildren, AChildOfTheLeaderDoesNotHideItsEnd) {
  const Pipe names;
  const Pipe end_of_test;
  const Peer leader([&] {
    auto listener = HandoverListener::open();
    if (!listener.ok()) return false;
    const std::string& name = listener->name();
    if (::write(names.ends[1], name.data(), name.size()) < 0) return false;
    const auto board = lead(*listener);
    return board.ok() && leave_child(end_of_test);
  });
  std::string name(32, '?');
  ASSERT_EQ(::read(names.ends[0], name.data(), name.size()), static_cast<ssize_t>(name.size()));
  const auto board = join(name);
  ASSERT_TRUE(board.ok()) << board.status().to_string();
  EXPECT_TRUE(leader.succeeded());
  EXPECT_TRUE(ended(board->connections.at(0)));
}

}  // namespace
}  // namespace ronde::collectives
