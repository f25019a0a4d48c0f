// SPDX-License-Identifier: Apache-2.0
// The handover of a board between forked processes: ranks that join on time, late or never, and
// strangers.
#include "collectives/board/handover.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "base/wire/unix_socket.h"
#include "collectives/board/board.h"
#include "collectives/board/handover_socket.h"
#include "test/unit/collectives/board/sleeper.h"

namespace ronde::collectives {
namespace {

using base::Code;
using base::FileDescriptor;
using std::chrono::milliseconds;
using std::chrono::seconds;

// The ranks of the job that this host has. They are not 0, 1, 2, so that a text that names a
// position in place of a rank fails the test.
std::vector<int> job_ranks(std::size_t count) {
  std::vector<int> ranks(count);
  std::iota(ranks.begin(), ranks.end(), 40);
  return ranks;
}

class Children {
 public:
  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() { wait(); }
  void start(const std::function<bool()>& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body() ? 0 : 1);
    pids_.push_back(child);
  }
  // Waits for all children and returns how many succeeded.
  int wait() {
    int good = 0;
    for (const pid_t pid : pids_) {
      int status = -1;
      if (::waitpid(pid, &status, 0) == pid && status == 0) ++good;
    }
    pids_.clear();
    return good;
  }

 private:
  std::vector<pid_t> pids_;
};

bool wait_rung(const Doorbell& bell) {
  bell.arm();
  pollfd entry{bell.event_fd(), POLLIN, 0};
  return bell.rings() > 0 || ::poll(&entry, 1, kHangMs) == 1;
}

// Attaches and passes a ring around the host: rank r waits for its bell and rings r + 1. That works
// only if every rank holds all eventfds and they all share one memory.
bool pass_ring_around(BoardHandover handover, std::size_t position, std::size_t ranks) {
  const auto rank = static_cast<std::int32_t>(position);
  auto board = Board::attach(std::move(handover.memory), rank, std::move(handover.event_fds));
  if (!board.ok()) return false;
  board->enter();
  const auto next = static_cast<std::int32_t>((position + 1) % ranks);
  if (position == 0) {
    board->doorbell(next).ring();
    return wait_rung(board->doorbell(0));
  }
  if (!wait_rung(board->doorbell(rank))) return false;
  board->doorbell(next).ring();
  return true;
}

struct Host {
  explicit Host(std::size_t count) : ranks(job_ranks(count)) {
    const BoardGeometry geometry{
        .ranks = static_cast<std::int32_t>(count), .announce_bytes = 64, .decision_bytes = 64};
    memory = *SharedMemory::create_memfd(Board::size_of(geometry));
    EXPECT_TRUE(Board::format(*memory, geometry).ok());
  }
  base::Result<BoardHandover> lead(std::chrono::nanoseconds limit) {
    return listener.hand_over(memory, ranks, clock, clock.after(limit));
  }
  base::Result<BoardHandover> join(std::size_t position, std::chrono::nanoseconds limit) {
    return receive_board(listener.name(), position, ranks, clock, clock.after(limit));
  }
  void start_rank(Children& children, std::size_t position, milliseconds delay = {}) {
    children.start([this, position, delay] {
      std::this_thread::sleep_for(delay);
      auto board = join(position, seconds(20));
      return board.ok() && pass_ring_around(std::move(*board), position, ranks.size());
    });
  }

  std::vector<int> ranks;
  std::shared_ptr<SharedMemory> memory;
  base::SteadyClock clock;
  HandoverListener listener = std::move(*HandoverListener::open());
};

// Starts ranks 1 to n-1, leads the handover, and passes the ring around.
void expect_works(Host& host, Children& children, milliseconds last_is_late = {}) {
  const std::size_t count = host.ranks.size();
  for (std::size_t position = 1; position < count; ++position) {
    host.start_rank(children, position, position + 1 == count ? last_is_late : milliseconds(0));
  }
  auto board = host.lead(seconds(20));
  ASSERT_TRUE(board.ok()) << board.status().to_string();
  EXPECT_TRUE(pass_ring_around(std::move(*board), 0, count));
  EXPECT_EQ(children.wait(), static_cast<int>(count) - 1);
}

TEST(BoardHandover, NamesAreRandom) {
  auto one = HandoverListener::open();
  auto two = HandoverListener::open();
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(one->name().size(), 32U);
  EXPECT_EQ(one->name().find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(one->name(), two->name());
}

TEST(BoardHandover, EveryRankGetsTheBoardAndAllBells) {
  for (const std::size_t count : {1U, 2U, 3U, 4U}) {
    Host host(count);
    Children children;
    expect_works(host, children);
  }
}

TEST(BoardHandover, ManyRanksNeedSeveralBatches) {
  // One process plays all other ranks, and closes the descriptors that it gets: a process may not
  // hold so many.
  constexpr std::size_t kCount = kFdsPerMessage + 20;
  Host host(kCount);
  Children children;
  children.start([&] {
    std::vector<std::thread> threads;
    std::atomic<int> good{0};
    for (std::size_t position = 1; position < kCount; ++position) {
      threads.emplace_back([&, position] {
        auto socket =
            base::connect_abstract(host.listener.name(), host.clock, host.clock.after(seconds(20)));
        auto bell = make_event_fd();
        if (!socket.ok() || !bell.ok()) return;
        HandoverMessage hello;
        hello.kind = HandoverKind::kHello;
        hello.ranks = kCount;
        hello.value = position;
        const auto deadline = host.clock.after(seconds(60));
        if (!send_message(*socket, hello, {bell->get()}, host.clock, deadline).ok()) return;
        std::size_t event_fds = 0;
        for (int message = 0; message < 3; ++message) {  // the board and two batches
          auto received = receive_message(*socket, host.clock, deadline);
          if (!received.ok()) return;
          if (received->message.kind == HandoverKind::kEventFds) event_fds += received->fds.size();
          if (!send_message(*socket, HandoverMessage{}, {}, host.clock, deadline).ok()) return;
        }
        good += event_fds == kCount ? 1 : 0;
      });
    }
    for (auto& thread : threads) thread.join();
    return good.load() == static_cast<int>(kCount) - 1;
  });
  auto board = host.lead(seconds(60));
  ASSERT_TRUE(board.ok()) << board.status().to_string();
  EXPECT_EQ(board->event_fds->size(), kCount);
  EXPECT_EQ(children.wait(), 1);
}

TEST(BoardHandover, WaitsForALateRank) {
  Host host(3);
  Children children;
  expect_works(host, children, milliseconds(300));
}

TEST(BoardHandover, NamesAMissingRank) {
  Host host(4);
  Children children;
  host.start_rank(children, 2);
  const auto begin = host.clock.now();
  const auto board = host.lead(milliseconds(300));
  ASSERT_FALSE(board.ok());
  EXPECT_EQ(board.status().code(), Code::kDeadline);
  EXPECT_NE(board.status().message().find("41, 43;"), std::string::npos)
      << board.status().message();
  EXPECT_NE(board.status().message().find("RONDE_START_TIMEOUT_SECONDS"), std::string::npos);
  EXPECT_EQ(board.status().rank(), 41);
  EXPECT_LT(host.clock.now() - begin, seconds(10));
}

TEST(BoardHandover, NamesARankThatDied) {
  Host host(3);
  Children children;
  children.start([&] {
    auto socket =
        base::connect_abstract(host.listener.name(), host.clock, host.clock.after(seconds(20)));
    auto bell = make_event_fd();
    HandoverMessage hello;
    hello.kind = HandoverKind::kHello;
    hello.ranks = 3;
    hello.value = 2;
    return socket.ok() &&
           send_message(*socket, hello, {bell->get()}, host.clock, host.clock.after(seconds(20)))
               .ok();
  });
  const auto board = host.lead(seconds(20));  // fails long before
  ASSERT_FALSE(board.ok());
  EXPECT_EQ(board.status().code(), Code::kPeerFailed);
  EXPECT_EQ(board.status().rank(), 42);
}

// The deadline of a rank may pass shortly before the leader's. The error names the missing rank all
// the same.
TEST(BoardHandover, ARankThatGaveUpFirstIsNotBlamed) {
  Host host(3);
  Children children;
  children.start(
      [&] { return host.join(1, milliseconds(100)).status().code() == Code::kDeadline; });
  const auto board = host.lead(seconds(20));  // receives kGaveUp long before
  EXPECT_EQ(children.wait(), 1);
  ASSERT_FALSE(board.ok());
  EXPECT_EQ(board.status().code(), Code::kDeadline) << board.status().message();
  EXPECT_EQ(board.status().rank(), 42) << board.status().message();
}

TEST(BoardHandover, ARankThatGivesUpWhenItGetsTheBoardIsNoMember) {
  Host host(2);
  Children children;
  children.start([&] {
    const base::Instant deadline = host.clock.after(seconds(20));
    auto socket = base::connect_abstract(host.listener.name(), host.clock, deadline);
    auto bell = make_event_fd();
    HandoverMessage word;
    word.kind = HandoverKind::kHello;
    word.ranks = 2;
    word.value = 1;
    if (!socket.ok() || !send_message(*socket, word, {bell->get()}, host.clock, deadline).ok() ||
        !receive_message(*socket, host.clock, deadline).ok()) {
      return false;
    }
    word.kind = HandoverKind::kGaveUp;
    return send_message(*socket, word, {}, host.clock, deadline).ok();
  });
  const auto board = host.lead(seconds(20));  // fails long before
  EXPECT_EQ(children.wait(), 1);
  ASSERT_FALSE(board.ok());
  EXPECT_EQ(board.status().code(), Code::kDeadline) << board.status().message();
  EXPECT_EQ(board.status().rank(), 41);
  EXPECT_NE(board.status().message().find("gave up"), std::string::npos)
      << board.status().message();
}

TEST(BoardHandover, ARankWhoseLeaderNeverAnswersNamesIt) {
  Host host(2);
  const auto board = host.join(1, milliseconds(100));  // the leader listens, but hands nothing over
  ASSERT_FALSE(board.ok());
  EXPECT_EQ(board.status().code(), Code::kDeadline);
  EXPECT_NE(board.status().message().find("from rank 40"), std::string::npos);
}

TEST(BoardHandover, ARankWhoseLeaderIsGoneNamesIt) {
  const auto ranks = job_ranks(2);
  const base::SteadyClock clock;
  const auto board = receive_board("no such name", 1, ranks, clock, clock.after(seconds(20)));
  ASSERT_FALSE(board.ok());
  EXPECT_NE(board.status().message().find("from rank 40"), std::string::npos);
}

// Deadlines are those of the injected clock: this test waits no real minute.
TEST(BoardHandover, TheDeadlineIsOfTheInjectedClock) {
  Host host(2);
  base::ManualClock manual;
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(50));
    manual.advance(seconds(61));
  });
  const auto board =
      host.listener.hand_over(host.memory, host.ranks, manual, manual.after(seconds(60)));
  later.join();
  EXPECT_EQ(board.status().code(), Code::kDeadline);
}

// Sends everything that a stranger can send. Each stranger leaves an open connection behind as
// well.
std::vector<FileDescriptor> garbage(const Host& host) {
  std::vector<FileDescriptor> sockets;
  const auto deadline = host.clock.after(seconds(20));
  const auto connect = [&]() -> FileDescriptor& {
    sockets.push_back(
        std::move(*base::connect_abstract(host.listener.name(), host.clock, deadline)));
    return sockets.back();
  };
  const auto bell = std::move(*make_event_fd());
  const auto send = [&](const HandoverMessage& message, const std::vector<int>& fds) {
    EXPECT_TRUE(send_message(connect(), message, fds, host.clock, deadline).ok());
  };
  connect();          // sends nothing
  connect().reset();  // hangs up
  EXPECT_EQ(::send(connect().get(), "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL), 16);
  HandoverMessage hello;
  hello.kind = HandoverKind::kHello;
  hello.ranks = static_cast<std::uint32_t>(host.ranks.size());
  hello.value = 1;
  send(hello, {});                        // no descriptor
  send(hello, {bell.get(), bell.get()});  // too many
  HandoverMessage wrong = hello;
  wrong.magic ^= 1U;
  send(wrong, {bell.get()});
  wrong = hello;
  wrong.version += 1;
  send(wrong, {bell.get()});
  wrong = hello;
  wrong.ranks += 1;  // a hello of another job
  send(wrong, {bell.get()});
  wrong = hello;
  wrong.kind = HandoverKind::kOk;
  send(wrong, {bell.get()});
  for (const std::uint64_t position : {std::uint64_t{0}, std::uint64_t{3}, ~std::uint64_t{0}}) {
    wrong = hello;
    wrong.value = position;
    send(wrong, {bell.get()});
  }
  return sockets;
}

TEST(BoardHandover, GarbageIsIgnored) {
  Host host(2);
  const auto strangers = garbage(host);
  Children children;
  expect_works(host, children, milliseconds(100));  // after the leader has read the garbage
}

TEST(BoardHandover, ManySilentStrangersDoNotKeepRanksOut) {
  Host host(2);
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 150; ++i) {
    strangers.push_back(std::move(
        *base::connect_abstract(host.listener.name(), host.clock, host.clock.after(seconds(20)))));
  }
  Children children;
  expect_works(host, children);
}

// A clock that moves on whenever somebody looks at it.
class HastyClock final : public base::Clock {
 public:
  [[nodiscard]] base::Instant now() const override {
    return base::Instant() + seconds(looks_.fetch_add(1));
  }

 private:
  mutable std::atomic<int> looks_{0};
};

// The leader accepted whoever came before it looked at its clock again, so that a stranger who
// connects in a loop kept it past its deadline.
TEST(BoardHandover, TheDeadlineHoldsWhileStrangersKeepComing) {
  Host host(2);
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 400; ++i) {
    strangers.push_back(std::move(
        *base::connect_abstract(host.listener.name(), host.clock, host.clock.after(seconds(20)))));
  }
  const HastyClock hasty;  // two looks at it between two at the sockets, so two at the sockets here
  const auto board =
      host.listener.hand_over(host.memory, host.ranks, hasty, hasty.after(seconds(4)));
  EXPECT_EQ(board.status().code(), Code::kDeadline);
  int closed = 0;  // by the leader, which had accepted them
  for (const FileDescriptor& stranger : strangers) {
    pollfd entry{stranger.get(), POLLIN, 0};
    closed += ::poll(&entry, 1, 0) > 0 ? 1 : 0;
  }
  EXPECT_GT(closed, 0);
  EXPECT_LE(closed, 3 * 64);
}

}  // namespace
}  // namespace ronde::collectives
