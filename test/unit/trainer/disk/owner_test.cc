// SPDX-License-Identifier: Apache-2.0
// Who gets a directory whose lock another host has: one that lives, or one that has died, for which
// a file server keeps the lock a while.
#include "bindings/trainer/disk/owner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>

#include "test/unit/trainer/chief/disk_model.h"

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

TEST_F(OwnerOnAnotherHost, NorIsALockThatNeverGoes) {
  const Attempt refused = attempt(disk_, [](int) {});
  EXPECT_THAT(refused.error, HasSubstr("is held by another training"));
  EXPECT_LE(refused.seconds, 121);
}

}  // namespace
}  // namespace ronde::trainer
