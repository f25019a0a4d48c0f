// SPDX-License-Identifier: Apache-2.0
// Processes of other users: their connections, their listeners and their files. Needs root, which
// alone can become them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/wire/unix_socket.h"
#include "runtime/meet/secret.h"
#include "test/unit/runtime/meet/meeting_ranks.h"

namespace ronde::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr uid_t kOther = 12345;

// Runs `body` in a thread that is another user's: the system call changes this thread alone.
std::thread as_another_user(const std::function<void()>& body) {
  return std::thread([body] {
    ASSERT_EQ(::syscall(SYS_setresuid, kOther, kOther, kOther), 0);
    body();
  });
}

// The name of root's meeting at this port.
std::string name_of(const MeetingPoint& point) { return "meet-0-" + std::to_string(point.port); }

class OtherUsers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  }
};

TEST_F(OtherUsers, AreTurnedAwayUnread) {
  MeetingRanks job(2, point_on_host());
  std::atomic<bool> over{false};
  std::thread stranger = as_another_user([&] {
    base::FileDescriptor socket;
    EXPECT_TRUE(ronde::testing::eventually([&] {
      auto one =
          base::connect_abstract(name_of(job.plan.point), job.clock, job.clock.after(seconds(1)));
      if (one.ok()) socket = std::move(*one);
      return socket.valid();
    }));
    // Closed, although it has sent nothing that is wrong.
    strangers::let_block(socket);
    EXPECT_TRUE(strangers::is_closed_soon(socket));
    over = true;
  });
  const auto results = job.run({}, [&](std::int32_t rank, MeetingPlan& /*mine*/) {
    while (rank == 1 && !over) std::this_thread::sleep_for(milliseconds(1));
  });
  stranger.join();
  for (const base::Status& result : results) EXPECT_TRUE(result.ok()) << result.to_string();
  EXPECT_THAT(job.warnings.text(),
              HasSubstr("turned away: it was another user's (last from process "));
  EXPECT_THAT(job.warnings.text(), HasSubstr("of user 12345)"));
}

TEST_F(OtherUsers, AreNotTakenForRankZero) {
  MeetingRanks job(2, point_on_host());
  job.limit = seconds(1);
  std::atomic<bool> listening{false};
  std::atomic<bool> over{false};
  std::thread impostor = as_another_user([&] {
    const auto socket = base::listen_abstract(name_of(job.plan.point));
    EXPECT_TRUE(socket.ok());
    listening = true;
    while (!over) std::this_thread::sleep_for(milliseconds(1));
  });
  while (!listening) std::this_thread::sleep_for(milliseconds(1));
  const base::Status result = job.meet_one(job.plan_of(1)).status();
  over = true;
  impostor.join();
  EXPECT_EQ(result.code(), base::Code::kDeadline);
  EXPECT_THAT(result.message(), HasSubstr("a process of another user listens there"));
}

TEST_F(OtherUsers, KnowTheSecretInTheirFile) {
  const std::string path =
      ::testing::TempDir() + "ronde-secret-given-" + std::to_string(::getpid());
  std::ofstream(path) << "0123456789abcdef";
  ::chmod(path.c_str(), 0600);
  ASSERT_EQ(::chown(path.c_str(), kOther, kOther), 0);
  const auto secret = MeetingSecret::of(std::vector<std::string>{"RONDE_JOB_SECRET_FILE=" + path});
  ::unlink(path.c_str());
  EXPECT_EQ(secret.status().code(), base::Code::kInvalidArgument);
  EXPECT_THAT(secret.status().message(), HasSubstr("belongs to user 12345"));
}

}  // namespace
}  // namespace ronde::runtime
