// SPDX-License-Identifier: Apache-2.0
// A rank that is killed, stopped or closed, as seen by another one. The other one is this program
// again, in a process of its own.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "test/support/transport_contract.h"
#include "test/unit/collectives/transport/ucx/ends.h"

extern char** environ;

namespace ronde::collectives::ucx {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

// What a process tells the other over a socket pair. Both end when the other has ended.
class Line {
 public:
  explicit Line(int fd) : fd_(fd) {}
  ~Line() { ::close(fd_); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  void put(std::span<const std::byte> bytes) const {
    const std::uint32_t length = base::narrow<std::uint32_t>(bytes.size());
    ASSERT_EQ(::write(fd_, &length, sizeof length), sizeof length);
    ASSERT_EQ(::write(fd_, bytes.data(), bytes.size()), base::narrow<ssize_t>(bytes.size()));
  }
  [[nodiscard]] std::vector<std::byte> get() const {
    std::uint32_t length = 0;
    EXPECT_EQ(::recv(fd_, &length, sizeof length, MSG_WAITALL), sizeof length);
    std::vector<std::byte> bytes(length);
    if (length == 0) return bytes;
    EXPECT_EQ(::recv(fd_, bytes.data(), length, MSG_WAITALL), base::narrow<ssize_t>(length));
    return bytes;
  }

 private:
  int fd_;
};

void introduce(OpenEnd& end, const Line& line) {
  line.put(end.end->address());
  const std::vector<std::byte> theirs = line.get();
  std::array<std::span<const std::byte>, 2> addresses{theirs, theirs};
  addresses.at(base::narrow<std::size_t>(end.transport->rank())) = end.end->address();
  ASSERT_TRUE(end.end->connect(addresses).ok());
}

constexpr std::size_t kWord = 20'000;
constexpr int kWords = 500;                // more than a connection holds
constexpr std::size_t kBook = 30'000'000;  // more than all buffers between two processes hold

// The other rank: this program with a variable that says what it does.
class UcxLoss : public testing::Test {
 protected:
  void start(const std::string& what) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    ASSERT_EQ(::fcntl(ends[1], F_SETFD, 0), 0);
    std::vector<std::string> words{"UCX_TEST_PEER=" + what + ":" + std::to_string(ends[1])};
    for (char** one = environ; *one != nullptr; ++one) {
      if (!std::string(*one).starts_with("GTEST_")) words.emplace_back(*one);
    }
    std::vector<char*> environment;
    for (std::string& word : words) environment.push_back(word.data());
    environment.push_back(nullptr);
    std::string program = "/proc/self/exe";
    std::string filter = "--gtest_filter=UcxLossPeer.*";
    std::string quiet = "--gtest_brief=1";
    std::array<char*, 4> arguments{program.data(), filter.data(), quiet.data(), nullptr};
    ASSERT_EQ(::posix_spawn(&pid_, program.c_str(), nullptr, nullptr, arguments.data(),
                            environment.data()),
              0);
    ::close(ends[1]);
    line_ = std::make_unique<Line>(ends[0]);
    end_ = std::make_unique<OpenEnd>(0, 2);
    introduce(*end_, *line_);
  }
  void TearDown() override {
    if (pid_ > 0) kill(SIGKILL);
  }
  void kill(int signal) {
    ASSERT_EQ(::kill(pid_, signal), 0);
    if (signal != SIGKILL) return;
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  // Until the other rank has ended; it is answered meanwhile.
  void await_exit() {
    int status = -1;
    const base::Instant limit = clock_.after(seconds(60));
    while (::waitpid(pid_, &status, WNOHANG) == 0 && clock_.now() < limit) end_->end->progress();
    EXPECT_EQ(status, 0);
    pid_ = 0;
  }
  // The error with which a request ends; the thread sleeps until then.
  base::Status error_of(Transport::Request request) {
    const base::Instant limit = clock_.after(seconds(60));
    while (clock_.now() < limit) {
      for (int i = 0; i < 2; ++i) {
        const auto done = end_->transport->test(request);
        if (!done.ok()) return done.status();
        if (*done) return {};
      }
      const auto armed = end_->end->arm();
      if (!armed.ok()) return armed.status();
      pollfd watched{end_->end->descriptor(), POLLIN, 0};
      if (*armed && ::poll(&watched, 1, 60'000) != 1) break;
    }
    return base::Status::error(base::Code::kDeadline, "the loss was never noticed");
  }
  static void expect_lost(const base::Status& status) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.code(), base::Code::kPeerFailed) << status.to_string();
    EXPECT_EQ(status.rank(), 1);
    EXPECT_THAT(status.message(), HasSubstr("rank 1"));
    EXPECT_THAT(status.message(), HasSubstr("is lost"));
  }
  TransportContract talk() { return TransportContract(*end_->transport); }

  base::SteadyClock clock_;
  pid_t pid_ = 0;
  std::unique_ptr<Line> line_;
  std::unique_ptr<OpenEnd> end_;
};

// ---- what the other rank does ----

TEST(UcxLossPeer, Acts) {
  const char* wanted = std::getenv("UCX_TEST_PEER");
  if (wanted == nullptr) return;  // it is not the other rank
  const std::string text = wanted;
  const std::string what = text.substr(0, text.find(':'));
  const Line line(std::stoi(text.substr(text.find(':') + 1)));
  auto end = std::make_unique<OpenEnd>(1, 2);
  introduce(*end, line);
  TransportContract talk(*end->transport);
  if (what == "meets") talk.meet(1);
  if (what == "sends" || what == "closes") {
    std::vector<Transport::Request> requests;
    std::vector<TransportContract::Message> messages;
    for (int n = 0; n < kWords; ++n) {
      messages.push_back(TransportContract::make(1, 0, n, kWord));
    }
    for (int n = 0; n < kWords; ++n) {
      requests.push_back(talk.send(0, 2, messages[base::narrow<std::size_t>(n)]));
    }
    if (what == "closes") {
      const base::SteadyClock clock;
      end->end->say_good_bye(clock, clock.after(seconds(30)));
      end.reset();
      return;
    }
    talk.finish_all(requests);
  }
  line.put({});
  ::pause();  // until it is killed
}

// ---- what this rank sees ----

TEST_F(UcxLoss, AReceiveFromARankThatIsKilledFails) {
  ASSERT_NO_FATAL_FAILURE(start("meets"));
  talk().meet(1);
  static_cast<void>(line_->get());
  std::byte word{};
  const auto request = talk().receive(1, 2, {&word, 1});
  kill(SIGKILL);
  expect_lost(error_of(request));
  EXPECT_EQ(end_->transport->outstanding(), 0);
  const auto next = end_->transport->send(1, 2, {&word, 1});
  expect_lost(next.status());
  EXPECT_EQ(end_->transport->outstanding(), 0);
}

TEST_F(UcxLoss, SoDoesOneFromARankThatNeverSentAWord) {
  ASSERT_NO_FATAL_FAILURE(start("waits"));
  static_cast<void>(line_->get());
  std::byte word{};
  const auto request = talk().receive(1, 2, {&word, 1});
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(end_->transport->test(request).ok());
  kill(SIGKILL);
  expect_lost(error_of(request));
}

TEST_F(UcxLoss, SoDoesASendThatItHasNotReceived) {
  ASSERT_NO_FATAL_FAILURE(start("meets"));
  talk().meet(1);
  static_cast<void>(line_->get());
  kill(SIGSTOP);
  const TransportContract::Message book(kBook);
  const auto request = talk().send(1, 2, book);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(end_->transport->test(request).ok());
  kill(SIGKILL);
  expect_lost(error_of(request));
}

TEST_F(UcxLoss, WhatHadArrivedBeforeIsDelivered) {
  ASSERT_NO_FATAL_FAILURE(start("sends"));
  TransportContract::Message to(kWord);
  for (int n = 0; n < kWords; ++n) {
    if (n == kWords - 20) {
      static_cast<void>(line_->get());  // all sends have ended
      kill(SIGKILL);
    }
    const base::Status status = error_of(talk().receive(1, 2, to));
    ASSERT_TRUE(status.ok()) << status.to_string() << " in message " << n;
    ASSERT_EQ(to, TransportContract::make(1, 0, n, kWord));
  }
  expect_lost(error_of(talk().receive(1, 2, to)));
}

// The other rank ends its process as soon as its end is closed, without having tested its sends.
TEST_F(UcxLoss, WhatWasSentBeforeTheCloseIsDelivered) {
  ASSERT_NO_FATAL_FAILURE(start("closes"));
  TransportContract::Message to(kWord);
  for (int n = 0; n < kWords; ++n) {
    const base::Status status = error_of(talk().receive(1, 2, to));
    ASSERT_TRUE(status.ok()) << status.to_string() << " in message " << n;
    ASSERT_EQ(to, TransportContract::make(1, 0, n, kWord));
  }
  await_exit();
}

TEST_F(UcxLoss, ClosingWaitsForNoRankThatHangs) {
  ASSERT_NO_FATAL_FAILURE(start("meets"));
  talk().meet(1);
  static_cast<void>(line_->get());
  kill(SIGSTOP);
  const TransportContract::Message book(kBook);
  TransportContract::Message room(8);
  talk().send(1, 2, book);
  talk().receive(1, 3, room);
  const base::Instant begin = clock_.now();
  end_->end->say_good_bye(clock_, clock_.after(std::chrono::milliseconds(300)));
  const base::Instant flushed = clock_.now();
  EXPECT_GE(flushed - begin, std::chrono::milliseconds(300)) << "nothing was left to wait for";
  end_.reset();
  EXPECT_LT(clock_.now() - begin, seconds(30));
}

}  // namespace
}  // namespace ronde::collectives::ucx
