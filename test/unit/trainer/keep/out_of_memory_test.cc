// SPDX-License-Identifier: Apache-2.0
// No memory for a copy of the tensors: that checkpoint is left out, and training goes on. The
// allocator of this program fails when it is told to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <string_view>

#include "test/unit/trainer/keep/supervised_training.h"
#include "test/unit/trainer/temporary_folder.h"

namespace {

constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();

// The size from which on this thread is refused, and the one with which new threads begin. A thread
// of an engine, which may have been there for long before it wants memory, is none of them.
std::atomic<std::size_t> too_large_on_new_threads{kAny};
std::size_t too_large_at_first() {
  std::array<char, 16> name{};
  ::pthread_getname_np(::pthread_self(), name.data(), name.size());
  return std::string_view(name.data()).starts_with("ronde-") ? kAny
                                                             : too_large_on_new_threads.load();
}
thread_local std::size_t too_large = too_large_at_first();

void* allocate(std::size_t size) {
  void* const memory = size >= too_large ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t /*size*/) noexcept { std::free(memory); }

namespace ronde::trainer {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// Saves on the chief, which has memory for anything smaller.
void save_with(std::size_t memory, Supervisor& supervisor) {
  too_large = memory;
  supervisor.save();
  too_large = kAny;
}

class OutOfMemory : public testing::Test {
 protected:
  SupervisedTraining training() const {
    return {.ranks = 2,
            .epochs = 1,
            .supervisor = {.logdir = folder_.path(), .save_model_secs = 0.0},
            .hidden = 3000};
  }
  static constexpr std::size_t kLessThanTheTensors = 200'000;

  const TemporaryFolder folder_;
};

TEST_F(OutOfMemory, ASaveIsLeftOutAndSaid) {
  SupervisedTraining one = training();
  one.after_step_done = [](Supervisor& supervisor, int rank) {
    if (rank == 0 && supervisor.global_step() == 5) save_with(kLessThanTheTensors, supervisor);
    if (rank == 0 && supervisor.global_step() == 8) supervisor.save();
  };
  const SupervisedOutcome outcome = run_supervised(one);
  EXPECT_THAT(outcome.lines,
              testing::Contains("there is no memory for a copy of step 5, which is not saved"));
  EXPECT_THAT(outcome.exit_codes, Each(0));
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(8U, kStepsOfEpoch));
}

TEST_F(OutOfMemory, ALastSaveIsAFailure) {
  SupervisedTraining one = training();
  one.before_step_done = [](Supervisor& supervisor, int rank) {
    if (supervisor.global_step() + 1 != 5) return;
    supervisor.stop();
    if (rank == 0) too_large = kLessThanTheTensors;
  };
  const SupervisedOutcome outcome = run_to_failure(one);
  EXPECT_THAT(outcome.errors, Each(HasSubstr("step 5, the last one, is not saved in")));
  EXPECT_THAT(outcome.exit_codes, Each(kExitFailure));
}

// The thread that writes them has no memory, and none of the others notices but for a line.
TEST_F(OutOfMemory, ALogIsLeftOutAndSaid) {
  constexpr std::size_t kLessThanALine = 400;
  SupervisedTraining one{.ranks = 2, .epochs = 1};
  one.logs = {.directory = folder_.path() + "/logs", .every = 5};
  one.before_step_done = [](Supervisor& supervisor, int rank) {
    if (rank == 0 && supervisor.global_step() == 7) too_large_on_new_threads = kLessThanALine;
    if (rank == 0 && supervisor.global_step() == 13) too_large_on_new_threads = kAny;
  };
  const SupervisedOutcome outcome = run_supervised(one);
  EXPECT_THAT(outcome.lines, ElementsAre(HasSubstr("logs cannot be written: "),
                                         "logs are written again from step 15 on"));
  EXPECT_THAT(outcome.exit_codes, Each(0));
}

// A damaged, sparse file may have any size.
TEST_F(OutOfMemory, AFileThatNoMemoryHoldsIsNamed) {
  const std::string path = folder_.path() + "/file";
  write_file(disk(), path, std::string(50'000, 'x'));
  std::string error;
  too_large = 40'000;
  try {
    static_cast<void>(read_file(disk(), path));
  } catch (const FileError& refused) {
    error = refused.what();
  }
  too_large = kAny;
  EXPECT_EQ(error, path + ": Cannot allocate memory");
}

}  // namespace
}  // namespace ronde::trainer
