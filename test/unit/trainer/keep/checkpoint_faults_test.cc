// SPDX-License-Identifier: Apache-2.0
// A training's directory on a disk that fails: at each system call of each way to start, save and
// end, the call is refused, or the process is killed, or the power goes; then the next start is
// ended at each of its calls; and then a third one must find what was acknowledged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>

#include "bindings/trainer/keep/checkpoint_names.h"
#include "test/unit/trainer/keep/directory_model.h"

namespace ronde::trainer {
namespace {

using testing::HasSubstr;

struct Fault {
  const char* name;
  int error;  // 0: none
  enum class How : std::uint8_t {
    kKills,      // the process
    kCutsPower,  // of the machine
    kOnce,       // this call fails
    kOn,         // this one, and all later ones
    kFull,       // of this one and all later ones those that need space
    kHalves      // it fails not, but a write takes half of its bytes
  } how;
};

constexpr std::array kFaults{
    Fault{"killed", 0, Fault::How::kKills},       Fault{"power cut", 0, Fault::How::kCutsPower},
    Fault{"ENOSPC", ENOSPC, Fault::How::kOnce},   Fault{"EIO", EIO, Fault::How::kOnce},
    Fault{"EACCES", EACCES, Fault::How::kOnce},   Fault{"EINVAL", EINVAL, Fault::How::kOnce},
    Fault{"ENOLCK", ENOLCK, Fault::How::kOnce},   Fault{"ENOSPC on", ENOSPC, Fault::How::kOn},
    Fault{"EIO on", EIO, Fault::How::kOn},        Fault{"EACCES on", EACCES, Fault::How::kOn},
    Fault{"EINVAL on", EINVAL, Fault::How::kOn},  Fault{"full disk", ENOSPC, Fault::How::kFull},
    Fault{"short write", 0, Fault::How::kHalves},
};

// A disk on which all was well, then a fault at each call of a start, then an end at each call of
// the next.
class FaultSearch {
 public:
  explicit FaultSearch(Mistake mistake = Mistake::kNone) : mistake_(mistake) {}

  // `before`: the steps of an earlier training, of which the last may be damaged since.
  void search(const Start& start, std::uint64_t before, bool damaged) {
    DiskModel prepared;
    Told told_before;
    if (before != 0) run_alone(prepared, {.steps = before}, told_before, all_is_well, mistake_);
    if (damaged) {
      const auto file =
          prepared.find(checkpoint_path(kTrainFolder, before) + "/tensors.safetensors");
      file->synced_bytes = file->bytes += "x";
      told_before.acknowledged = --before;
    }
    for (const Fault& fault : kFaults) {
      for (int number = 1; problem_.empty(); ++number) {
        DiskModel disk(prepared);
        Told told = told_before;
        unsynced_ = false;
        const auto [outcome, calls] = run_alone(disk, start, told, at(number, fault), mistake_);
        if (calls < number) break;
        ++faults_;
        where_ = std::string(fault.name) + " at call " + std::to_string(number) + " of a start " +
                 start.how + ": " + outcome.error;
        if (start.how == "auto" && outcome.restored && outcome.from != before) {
          problem_ = where_ + "it went on from step " + std::to_string(outcome.from);
        }
        if (is_new(disk, told)) end_the_next_everywhere(disk, told);
      }
    }
    std::printf("%d faults left %d disks, of %d ends\n", faults_, disks_, ends_);
  }
  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] int disks() const { return disks_; }

 private:
  ProcessModel::Decide at(int number, const Fault& fault) {
    return [this, number, fault, calls = 0](const Call& call) mutable -> Fate {
      using How = Fault::How;
      const int now = ++calls;
      const std::string_view name = call.name;
      const bool stays = fault.how == How::kOn || fault.how == How::kFull;
      if (now < number || (now > number && !stays) || name == "pause") return {};
      if (fault.how == How::kFull && name != "write" && name != "mkdir") return {};
      if (fault.how == How::kHalves) return {.halves = true};
      if (fault.error == 0) return {.kill = true, .cut_power = fault.how == How::kCutsPower};
      // Where a directory cannot be synced a power cut may take what is in it: that is said.
      unsynced_ = unsynced_ || (fault.error != EIO && fault.error != ENOSPC);
      return {.error = fault.error};
    };
  }

  bool is_new(const DiskModel& disk, const Told& told) {
    const std::string state =
        disk.shown_with_synced() + told.shown() + (unsynced_ ? " unsynced" : "");
    if (!seen_.insert(std::hash<std::string>()(state)).second) return false;
    ++disks_;
    if (problem_.empty()) problem_ = judge(disk, told, mistake_);
    if (!problem_.empty()) problem_ = where_ + "\n" + problem_;
    return true;
  }

  // The next start, as it would be left by a kill or a power cut before each of its calls.
  void end_the_next_everywhere(const DiskModel& left, const Told& told_before) {
    DiskModel disk(left);
    Told told = told_before;
    const Start next{.how = told.begins_anew ? "never" : "auto", .steps = 1};
    const std::string before = where_;
    run_alone(
        disk, next, told,
        [&](const Call& call) -> Fate {
          where_ = before + ", and then an end before " + call.name + ' ' + call.path;
          for (const bool cuts_power : {false, true}) {
            if ((cuts_power && unsynced_) || !problem_.empty()) continue;
            DiskModel ended(disk);
            ended.close_files_of(1);
            if (cuts_power) ended.cut_power();
            ++ends_;
            is_new(ended, told);
          }
          return {};
        },
        mistake_);
  }

  const Mistake mistake_;
  std::set<std::size_t> seen_;
  std::string where_;
  std::string problem_;
  bool unsynced_ = false;
  int faults_ = 0;
  int disks_ = 0;
  int ends_ = 0;
};

std::string problem_of(const Start& start, std::uint64_t before, Mistake mistake = Mistake::kNone,
                       bool damaged = false) {
  FaultSearch searched(mistake);
  searched.search(start, before, damaged);
  EXPECT_GT(searched.disks(), 0);
  return searched.problem();
}

TEST(CheckpointFaults, AFirstTrainingLosesNothing) {
  EXPECT_EQ(problem_of({.steps = 2, .finishes = true}, 0), "");
}

TEST(CheckpointFaults, OneThatGoesOnLosesNothing) {
  EXPECT_EQ(problem_of({.steps = 1, .finishes = true}, 2), "");
}

TEST(CheckpointFaults, OneThatBeginsAnewLosesNothing) {
  EXPECT_EQ(problem_of({.how = "never", .steps = 2}, 2), "");
}

TEST(CheckpointFaults, OneThatGoesBackLosesNothing) {
  EXPECT_EQ(problem_of({.how = "step-1", .steps = 2}, 2), "");
}

TEST(CheckpointFaults, OneThatPassesOverADamagedOneLosesNothing) {
  EXPECT_EQ(problem_of({.steps = 2}, 2, Mistake::kNone, true), "");
}

// Half a record would be that of a process of which nothing is known.
TEST(CheckpointFaults, AnOwnerOfWhichHalfARecordIsWrittenIsNone) {
  DiskModel disk;
  ProcessModel process(
      disk, 1,
      [](const Call& call) {
        return Fate{.halves = call.path.find("owner-") != std::string::npos};
      },
      dead);
  make_directories(process, kTrainFolder);
  EXPECT_THROW(Owner(process, kTrainFolder), FileError);
  EXPECT_FALSE(disk.find(kTrainFolder + "/owner-1"));
}

TEST(CheckpointFaults, FindAMissingSync) {
  EXPECT_THAT(problem_of({.steps = 2}, 0, Mistake::kNoSync), HasSubstr("state.json=\n"));
}

TEST(CheckpointFaults, FindThatTheUnreadableIsTakenForMissing) {
  EXPECT_THAT(problem_of({.steps = 1}, 2, Mistake::kUnreadableGone), HasSubstr("EACCES"));
}

}  // namespace
}  // namespace ronde::trainer
