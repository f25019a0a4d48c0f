// SPDX-License-Identifier: Apache-2.0
// Jobs whose standard error is a pipe that nobody reads. A program of its own, because it
// redirects the standard error of the process.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "runtime/engine/engine.h"
#include "test/support/engines.h"
#include "test/support/eventually.h"

namespace ronde::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::allreduce_of;

constexpr int kPipeBytes = 1 << 16;

// From construction on, standard error is a full pipe. read() empties it; without it a thread of
// this object does after a while, so that whoever is blocked goes on, and the test fails.
class UnreadStandardError {
 public:
  UnreadStandardError() : old_(::dup(STDERR_FILENO)) {
    EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::fcntl(ends_[1], F_SETPIPE_SZ, kPipeBytes), kPipeBytes);
    EXPECT_GE(::dup2(ends_[1], STDERR_FILENO), 0);
    const std::string filling(kPipeBytes - 1, '.');
    EXPECT_EQ(::write(STDERR_FILENO, (filling + "\n").data(), kPipeBytes), kPipeBytes);
    rescuer_ = std::thread([this] { rescue(); });
  }
  ~UnreadStandardError() {
    end();
    ::dup2(old_, STDERR_FILENO);
    for (const int fd : {old_, ends_[0], ends_[1]}) ::close(fd);
  }
  UnreadStandardError(const UnreadStandardError&) = delete;
  UnreadStandardError& operator=(const UnreadStandardError&) = delete;

  // Whether nobody had to be rescued; nobody will be from now on.
  bool end() {
    over_.store(true);
    if (rescuer_.joinable()) rescuer_.join();
    return !rescued_.load();
  }
  // What is in the pipe now.
  [[nodiscard]] std::string read() const {
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    std::string text;
    std::array<char, kPipeBytes> bytes{};
    for (ssize_t count = 0; (count = ::read(ends_[0], bytes.data(), bytes.size())) > 0;) {
      text.append(bytes.data(), static_cast<std::size_t>(count));
    }
    return text;
  }

 private:
  void rescue() {
    const auto deadline = steady_clock::now() + std::chrono::seconds(20);
    while (!over_.load()) {
      std::this_thread::sleep_for(milliseconds(10));
      if (steady_clock::now() < deadline) continue;
      rescued_.store(true);
      static_cast<void>(read());
    }
  }

  const int old_;
  std::array<int, 2> ends_{-1, -1};
  std::atomic<bool> over_{false};
  std::atomic<bool> rescued_{false};
  std::thread rescuer_;
};

TEST(UnreadOutputR8, TheJobEndsAndAfterThePipeIsReadTheCountOfLostLinesIsSaid) {
  UnreadStandardError output;
  testing::EngineOptions options;
  options.environment = {"RONDE_STALL_WARNING_SECONDS=0.05"};
  const auto engines = testing::open_engines(4, options);
  std::string said;
  const auto allreduce = [&](int rank, const std::string& name) {
    if (rank == 3 && name == "unread") {
      std::this_thread::sleep_for(std::chrono::seconds(4));  // even a busy machine warns by then
    } else if (rank == 3) {
      EXPECT_TRUE(testing::eventually([&] {
        said += output.read();
        return said.find("'read' has waited") != std::string::npos;
      }));
    }
    std::vector<float> data(1000, 1.0F);
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    const auto work = engine.submit(allreduce_of(name, data));
    ASSERT_TRUE(work.ok());
    EXPECT_TRUE(engine.wait(**work).ok());
    EXPECT_FLOAT_EQ(data.front(), 4.0F);
  };
  testing::on_ranks(4, [&](int rank) { allreduce(rank, "unread"); });
  EXPECT_THAT(output.read(), ::testing::Not(::testing::HasSubstr("ronde"))) << "it was full before";
  testing::on_ranks(4, [&](int rank) { allreduce(rank, "read"); });
  EXPECT_TRUE(output.end()) << "a rank was blocked until the pipe was read";
  said += output.read();
  EXPECT_THAT(said, ::testing::ContainsRegex("ronde\\[rank [0-9]\\] warning: [0-9]+ lines? w[a-z]+ "
                                             "lost"));
  EXPECT_THAT(said, ::testing::HasSubstr("'read' has waited"));
  testing::on_ranks(
      4, [&](int rank) { EXPECT_TRUE(engines[static_cast<std::size_t>(rank)]->close().ok()); });
}

}  // namespace
}  // namespace ronde::runtime
