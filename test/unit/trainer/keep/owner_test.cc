// SPDX-License-Identifier: Apache-2.0
// Who gets a directory whose lock another host has: one that lives, or one that has died, for which
// a file server keeps the lock a while.
#include "bindings/trainer/keep/owner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "test/unit/trainer/keep/disk_model.h"

namespace ronde::trainer {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

const std::string kFolder = "/train";
constexpr OwnerPatience kPatience{.look = seconds(1)};

FileSystem::Life unknown(int /*process*/) { return FileSystem::Life::kUnknown; }

// A second start on another host, beside which something happens in each of its pauses of a second;
// how many of them there were. Empty error: it has the directory.
struct Attempt {
  int seconds = 0;
  std::string error{};
};
Attempt attempt(DiskModel& disk, const std::function<void(int second)>& meanwhile) {
  Attempt result;
  ProcessModel second(
      disk, 2,
      [&](const Call& call) {
        if (std::string(call.name) == "pause") meanwhile(++result.seconds);
        return Fate{};
      },
      unknown);
  try {
    const Owner owner(second, kFolder, kPatience);
    EXPECT_TRUE(owner.locked());
  } catch (const DataError& error) {
    result.error = error.what();
  }
  return result;
}

std::shared_ptr<DiskModel::Node> directory() {
  auto node = std::make_shared<DiskModel::Node>();
  node->is_directory = true;
  return node;
}

class OwnerOnAnotherHost : public testing::Test {
 protected:
  DiskModel disk_;
  ProcessModel first_{disk_, 1, [](const Call&) { return Fate{}; }, unknown};
  Owner owner_{(make_directories(first_, kFolder), first_), kFolder, kPatience};
};

TEST_F(OwnerOnAnotherHost, OneThatHasDiedIsWaitedForUntilItsLockGoes) {
  const Attempt late = attempt(disk_, [&](int second) {
    if (second == 90) first_.die();
  });
  EXPECT_EQ(late.error, "");
  EXPECT_GE(late.seconds, 90);
}

TEST_F(OwnerOnAnotherHost, OneThatLivesIsNot) {
  const Attempt refused = attempt(disk_, [&](int second) {
    if (second % 10 == 0) owner_.beat();
  });
  EXPECT_THAT(refused.error,
              HasSubstr(kFolder + " is held by another training (process 1 on host"));
  EXPECT_LE(refused.seconds, 20);
}

// A file that stays open would keep the lock for as long as the process lives.
TEST(OwnerOfADiskThatFails, AStartThatIsRefusedLeavesNoFileOpen) {
  bool refused = true;
  for (int failing = 1; refused; ++failing) {
    DiskModel disk;
    int calls = 0;
    ProcessModel process(
        disk, 1, [&](const Call&) { return Fate{.error = ++calls == failing ? EIO : 0}; }, unknown);
    disk.place(kFolder).first->entries[kFolder.substr(1)] = directory();
    try {
      const Owner owner(process, kFolder, kPatience);
      refused = calls >= failing;  // by a call without which it does
    } catch (const FileError&) {
      EXPECT_TRUE(disk.open_files.empty()) << "after an error in call " << failing;
    }
  }
}

TEST_F(OwnerOnAnotherHost, NorIsALockThatNeverGoes) {
  const Attempt refused = attempt(disk_, [](int) {});
  EXPECT_THAT(refused.error, HasSubstr("is held by another training"));
  EXPECT_LE(refused.seconds, 121);
}

}  // namespace
}  // namespace ronde::trainer
