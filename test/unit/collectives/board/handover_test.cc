// SPDX-License-Identifier: Apache-2.0
// The handover of a board between forked processes: ranks that join on time, late or never. Who may
// come in at all is in the tests of the door.
#include "collectives/board/handover.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/codec.h"
#include "base/log.h"
#include "base/wire/hello.h"
#include "base/wire/unix_socket.h"
#include "collectives/board/board.h"
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

// A hello: the position, and how many ranks the host has.
using HelloBytes = std::array<std::uint64_t, 2>;

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

bool ended(const FileDescriptor& connection) {
  pollfd entry{connection.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&entry, 1, kHangMs) == 1 && ::recv(connection.get(), &byte, 1, 0) == 0;
}

struct Host {
  explicit Host(std::size_t count) : ranks(job_ranks(count)) {
    const BoardGeometry geometry{
        .ranks = static_cast<std::int32_t>(count), .announce_bytes = 64, .decision_bytes = 64};
    memory = *SharedMemory::create_memfds(Board::parts_of(geometry));
    EXPECT_TRUE(Board::format(*memory, geometry).ok());
  }
  base::Result<BoardHandover> lead(std::chrono::nanoseconds limit) {
    return listener.hand_over(memory, ranks, clock, clock.after(limit), log);
  }
  base::Result<BoardHandover> join(std::size_t position, std::chrono::nanoseconds limit) {
    return receive_board(listener.name(), position, ranks, clock, clock.after(limit));
  }
  void start_rank(Children& children, std::size_t position, milliseconds delay = {}) {
    children.start([this, position, delay] {
      std::this_thread::sleep_for(delay);
      auto board = join(position, seconds(60));
      return board.ok() && pass_ring_around(std::move(*board), position, ranks.size());
    });
  }

  // What a rank does before it receives.
  template <typename Hello>
  FileDescriptor come(const Hello& hello) const {
    const auto deadline = clock.after(seconds(20));
    auto socket = base::connect_abstract(listener.name(), clock, deadline);
    EXPECT_TRUE(socket.ok()) << socket.status().to_string();
    const auto got =
        base::prove_to(*socket, std::as_bytes(std::span(listener.name())), clock, deadline);
    EXPECT_TRUE(got.ok() && *got == base::HelloReader::Got::kProven);
    EXPECT_TRUE(base::send_hello(*socket, base::encoded(hello)));
    return std::move(*socket);
  }

  std::vector<int> ranks;
  std::shared_ptr<SharedMemory> memory;
  base::SteadyClock clock;
  HandoverListener listener = std::move(*HandoverListener::open());
  std::string lines;
  base::Log log{base::LogLevel::kWarning, 40,
                [this](std::string_view line) { lines.append(line).append("\n"); }};
};

// Starts ranks 1 to n-1, leads the handover, and passes the ring around.
void expect_works(Host& host, Children& children, milliseconds last_is_late = {}) {
  const std::size_t count = host.ranks.size();
  for (std::size_t position = 1; position < count; ++position) {
    host.start_rank(children, position, position + 1 == count ? last_is_late : milliseconds(0));
  }
  auto board = host.lead(seconds(60));
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

// The kernel takes at most 253 descriptors in one message.
TEST(BoardHandover, ManyRanksNeedSeveralBatches) {
  Host host(260);
  Children children;
  expect_works(host, children);
}

TEST(BoardHandover, WaitsForALateRank) {
  Host host(3);
  Children children;
  expect_works(host, children, milliseconds(300));
}

TEST(BoardHandover, NamesAMissingRank) {
  base::Status said;
  // The second time is for a child that got no core in time, and was missing, too.
  for (const milliseconds limit : {milliseconds(300), milliseconds(10'000)}) {
    Host host(4);
    Children children;
    host.start_rank(children, 2);
    const auto begin = host.clock.now();
    said = host.lead(limit).status();
    EXPECT_LT(host.clock.now() - begin, limit + seconds(10));
    if (said.message().find("41, 42, 43;") == std::string::npos) break;
  }
  EXPECT_EQ(said.code(), Code::kDeadline);
  EXPECT_NE(said.message().find("41, 43;"), std::string::npos) << said.message();
  EXPECT_NE(said.message().find("RONDE_START_TIMEOUT_SECONDS"), std::string::npos);
  EXPECT_EQ(said.rank(), 41);
}

TEST(BoardHandover, NamesARankThatDied) {
  Host host(3);
  Children children;
  children.start([&] { return host.come(HelloBytes{2, 3}).valid(); });
  const auto board = host.lead(seconds(20));  // fails long before
  ASSERT_FALSE(board.ok());
  EXPECT_EQ(board.status().code(), Code::kPeerFailed);
  EXPECT_EQ(board.status().rank(), 42);
}

// The deadline of a rank may pass shortly before the leader's. The error names the missing rank all
// the same.
TEST(BoardHandover, ARankThatGaveUpFirstIsNotBlamed) {
  base::Status said;
  // The second time is for a rank that had not come in when it gave up: one of the two got no core.
  for (const milliseconds limit : {milliseconds(100), milliseconds(5000)}) {
    Host host(3);
    Children children;
    children.start([&] { return host.join(1, limit).status().code() == Code::kDeadline; });
    said = host.lead(seconds(20)).status();  // receives kGaveUp long before
    EXPECT_EQ(children.wait(), 1);
    if (said.message().find("41, 42;") == std::string::npos) break;
  }
  EXPECT_EQ(said.code(), Code::kDeadline) << said.message();
  EXPECT_EQ(said.rank(), 42) << said.message();
}

// Its leader and the others hear of it when all ranks tell each other how the start went.
TEST(BoardHandover, ARankThatIsShortOfDescriptorsBlamesItself) {
  Host host(8);
  Children children;
  for (std::size_t position = 2; position < 8; ++position) {
    children.start([&, position] { return host.join(position, seconds(20)).ok(); });
  }
  children.start([&] {
    const auto next = static_cast<rlim_t>(FileDescriptor(::dup(0)).get());
    const rlimit limit{next + 4, next + 4};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
    const base::Status got = host.join(1, seconds(20)).status();
    return got.message().find("ulimit -n") != std::string::npos && !got.rank();
  });
  EXPECT_TRUE(host.lead(seconds(20)).ok());
  EXPECT_EQ(children.wait(), 7);
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
  const base::Instant deadline = manual.after(seconds(60));
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(50));
    manual.advance(seconds(61));
  });
  const auto board = host.listener.hand_over(host.memory, host.ranks, manual, deadline, host.log);
  later.join();
  EXPECT_EQ(board.status().code(), Code::kDeadline);
}

TEST(BoardHandover, OnlyRanksOfThisHostAreLetIn) {
  Host host(3);
  Children children;
  children.start([&] {
    if (!ended(host.come(std::uint8_t{1}))) return false;
    for (const HelloBytes& wrong :
         {HelloBytes{0, 3}, HelloBytes{3, 3}, HelloBytes{~0UL, 3}, HelloBytes{1, 4}}) {
      if (!ended(host.come(wrong))) return false;
    }
    const FileDescriptor first = host.come(HelloBytes{1, 3});
    return ended(host.come(HelloBytes{1, 3})) && host.join(2, seconds(20)).ok();
  });
  EXPECT_TRUE(host.lead(seconds(20)).ok());
  EXPECT_EQ(children.wait(), 1);
  EXPECT_NE(host.lines.find("6 connections were turned away: what came was no rank that this host"),
            std::string::npos)
      << host.lines;
}

// A door is closed to who was slow.
TEST(BoardHandover, ARankThatFindsTheDoorClosedComesAgain) {
  const std::string name = "closes-" + std::to_string(::getpid());
  const base::SteadyClock clock;
  const base::Instant deadline = clock.after(seconds(20));
  int visits = 0;
  std::thread leader([&, listener = std::move(*base::listen_abstract(name))] {
    while (visits < 2 && base::wait_until_ready(listener, POLLIN, clock, deadline)) {
      visits += base::accept_member(listener).socket.valid() ? 1 : 0;
    }
  });
  const auto ranks = job_ranks(2);
  EXPECT_FALSE(receive_board(name, 1, ranks, clock, deadline).ok());
  leader.join();
  EXPECT_EQ(visits, 2);
}

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

// Where there are no pidfds the connections tell who has died.
TEST(BoardHandover, AChildOfARankDoesNotHideItsEnd) {
  Host host(2);
  const Pipe end_of_test;
  Children ranks;
  ranks.start([&] {
    const auto board = host.join(1, seconds(20));
    return board.ok() && leave_child(end_of_test);
  });
  const auto board = host.lead(seconds(20));
  ASSERT_TRUE(board.ok()) << board.status().to_string();
  EXPECT_EQ(ranks.wait(), 1);
  EXPECT_TRUE(ended(board->connections.at(1)));
}

TEST(BoardHandover, AChildOfTheLeaderDoesNotHideItsEnd) {
  const Pipe names;
  const Pipe end_of_test;
  Children leaders;
  leaders.start([&] {
    Host host(2);
    const std::string& name = host.listener.name();
    if (::write(names.ends[1], name.data(), name.size()) < 0) return false;
    const auto board = host.lead(seconds(20));
    return board.ok() && leave_child(end_of_test);
  });
  std::string name(32, '?');
  ASSERT_EQ(::read(names.ends[0], name.data(), name.size()), std::ssize(name));
  const base::SteadyClock clock;
  const auto board = receive_board(name, 1, job_ranks(2), clock, clock.after(seconds(20)));
  ASSERT_TRUE(board.ok()) << board.status().to_string();
  EXPECT_EQ(leaders.wait(), 1);
  EXPECT_TRUE(ended(board->connections.at(0)));
}

}  // namespace
}  // namespace ronde::collectives
