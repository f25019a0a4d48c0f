// SPDX-License-Identifier: Apache-2.0
// What becomes of a Work that is not waited for: its memory may be freed as soon as it is gone.
// Through libronde.so, in a job of engines in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <future>
#include <optional>
#include <ronde/ronde.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/unit/bindings/local_ranks.h"

namespace {

using ronde::testing::on_ranks;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// For tests in which the other rank comes within the grace, though it may get no core for a while.
struct LongGrace {
  LongGrace() { ::setenv("RONDE_UNWIND_GRACE_SECONDS", "60", 1); }
  LongGrace(const LongGrace&) = delete;
  LongGrace& operator=(const LongGrace&) = delete;
  ~LongGrace() { ::unsetenv("RONDE_UNWIND_GRACE_SECONDS"); }
};

// An error *from* wait() drops the other works of the step, and frees their memory.
void drop_a_work(ronde::Engine& engine, std::size_t count) {
  const bool agrees = engine.rank() == 0;
  std::vector<float> a(agrees ? 10 : 11);
  std::vector<float> b(count, 1.0F);
  if (!agrees) std::this_thread::sleep_for(milliseconds(100));
  auto late = engine.allreduce("b", std::span(b), ronde::sum);
  auto refused = engine.allreduce("a", std::span(a));
  refused.wait();
}

TEST(Lifetime, R1AnErrorFromWaitLeavesTheMemoryOfOtherWorksAlone) {
  const LongGrace grace;
  on_ranks(2, [](ronde::Engine& engine) {
    for (const std::size_t count : {std::size_t{1} << 14, std::size_t{1} << 16}) {
      EXPECT_THROW(drop_a_work(engine, count), ronde::Error);
      // Where the freed memory was.
      std::vector<float> innocent(count, 7.0F);
      std::this_thread::sleep_for(milliseconds(200));
      EXPECT_THAT(innocent, Each(7.0F)) << "rank " << engine.rank();
      // The engine lives on.
      std::vector<float> more(3, 1.0F);
      engine.allreduce_blocking("more", std::span(more), ronde::sum);
      EXPECT_THAT(more, Each(2.0F));
    }
  });
}

TEST(Lifetime, R1AWorkWaitsAtTheEndOfItsScope) {
  on_ranks(2, [](ronde::Engine& engine) {
    std::vector<float> data(1000, 1.0F);
    {
      if (engine.rank() == 1) std::this_thread::sleep_for(milliseconds(50));
      const auto work = engine.allreduce("x", std::span(data), ronde::sum);
    }
    EXPECT_THAT(data, Each(2.0F));
  });
}

TEST(Lifetime, R1AnAssignedWorkWaitsForWhatItHeld) {
  on_ranks(2, [](ronde::Engine& engine) {
    std::vector<float> first(1000, 1.0F);
    std::vector<float> second(10, 1.0F);
    if (engine.rank() == 1) std::this_thread::sleep_for(milliseconds(50));
    auto work = engine.allreduce("first", std::span(first), ronde::sum);
    work = engine.allreduce("second", std::span(second), ronde::sum);
    EXPECT_THAT(first, Each(2.0F));
    work = std::move(work);  // NOLINT(clang-diagnostic-self-move)
    work.wait();
    EXPECT_THAT(second, Each(2.0F));
  });
}

// A rank that throws between submit and wait, while the others wait for what it will never submit.
TEST(Lifetime, R1AnExceptionBetweenSubmitAndWaitEndsTheJobOnAllRanks) {
  const ronde::LocalJob job(2);
  const auto began = Clock::now();
  std::thread other([&job] {
    ronde::Engine engine(job, 1);
    std::vector<float> data(10);
    try {
      engine.allreduce_blocking("another name", std::span(data));
      ADD_FAILURE() << "nobody else has submitted it";
    } catch (const ronde::Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("'gradient'"), HasSubstr("lifetime_test.cc:"),
                                      HasSubstr("exception"), HasSubstr("on rank 0")));
      EXPECT_EQ(error.rank(), 0);
    }
  });
  {
    ronde::Engine engine(job, 0);
    try {
      std::vector<float> gradient(10);
      const auto work = engine.allreduce("gradient", std::span(gradient));
      throw std::runtime_error("disk full");
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "disk full");
    }
    EXPECT_GT(Clock::now() - began, milliseconds(1900)) << "the grace";
  }
  other.join();
  EXPECT_LT(Clock::now() - began, seconds(30));
}

// Works that outlive the try, as members of a trainer do. `drop_in_handler` leaves one behind
// on rank 0.
void expect_job_to_end(const std::function<void(ronde::Engine&)>& drop_in_handler) {
  const ronde::LocalJob job(2);
  const auto began = Clock::now();
  std::thread other([&job] {
    ronde::Engine engine(job, 1);
    std::vector<float> data(10);
    EXPECT_THROW(engine.allreduce_blocking("another name", std::span(data)), ronde::Error);
  });
  {
    ronde::Engine engine(job, 0);
    drop_in_handler(engine);
    EXPECT_GT(Clock::now() - began, milliseconds(1900)) << "the grace";
  }
  other.join();
  EXPECT_LT(Clock::now() - began, seconds(30));
}

TEST(Lifetime, WorksThatAreDroppedInAHandlerEndTheJobOnAllRanks) {
  expect_job_to_end([](ronde::Engine& engine) {
    std::vector<float> gradient(10);
    std::vector<ronde::Work> works;
    try {
      works.push_back(engine.allreduce("gradient", std::span(gradient)));
      throw std::runtime_error("disk full");
    } catch (const std::runtime_error&) {
      works.clear();
    }
  });
}

TEST(Lifetime, AnAveragerThatIsDroppedInAHandlerEndsTheJobOnAllRanks) {
  expect_job_to_end([](ronde::Engine& engine) {
    std::vector<float> gradient(10);
    std::optional<ronde::GradientAverager> averager(engine);
    try {
      averager->ready(averager->add("gradient", std::span(gradient)));
      throw std::runtime_error("disk full");
    } catch (const std::runtime_error&) {
      averager.reset();
    }
  });
}

// What a handler begins is not what the exception has ended.
TEST(Lifetime, C19AWorkOfAHandlerWaitsAsLongAsOthers) {
  on_ranks(2, [](ronde::Engine& engine) {
    std::vector<float> data(10, 1.0F);
    try {
      throw std::runtime_error("caught at once");
    } catch (const std::runtime_error&) {
      if (engine.rank() == 1) std::this_thread::sleep_for(milliseconds(2300));
      const auto work = engine.allreduce("x", std::span(data), ronde::sum);
    }
    EXPECT_THAT(data, Each(2.0F));
  });
}

// Neither does an averager leave the others alone with what a rank will never submit.
TEST(Lifetime, R1AnAveragerThatAnExceptionLeavesBehindEndsTheJobOnAllRanks) {
  const ronde::LocalJob job(2);
  const auto began = Clock::now();
  std::thread other([&job] {
    ronde::Engine engine(job, 1);
    std::vector<float> data(10);
    EXPECT_THROW(engine.allreduce_blocking("another name", std::span(data)), ronde::Error);
  });
  {
    ronde::Engine engine(job, 0);
    std::vector<float> started(10);
    std::vector<float> held_back(10);
    try {
      ronde::GradientAverager averager(engine);
      averager.ready(averager.add("started", std::span(started)));
      averager.start();
      averager.ready(averager.add("held back", std::span(held_back)));
      throw std::runtime_error("disk full");
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "disk full");
    }
    EXPECT_GT(Clock::now() - began, milliseconds(1900)) << "the grace";
  }
  other.join();
  EXPECT_LT(Clock::now() - began, seconds(30));
}

TEST(Lifetime, R1AnAveragerFinishesWhatWasMadeReadyAndAveragesNothingElse) {
  on_ranks(2, [](ronde::Engine& engine) {
    std::vector<float> started(10, 1.0F);
    std::vector<float> held_back(10, 1.0F);
    std::vector<float> left_out(10, 1.0F);
    {
      ronde::GradientAverager averager(engine, ronde::sum);
      const auto first = averager.add("started", std::span(started));
      const auto second = averager.add("held back", std::span(held_back));
      averager.add("left out", std::span(left_out));
      averager.ready(first);
      averager.start();
      averager.ready(second);
    }
    EXPECT_THAT(started, Each(2.0F));
    EXPECT_THAT(held_back, Each(2.0F));
    EXPECT_THAT(left_out, Each(1.0F));
    EXPECT_EQ(engine.statistics().payload_bytes, 80U);
  });
}

// What comes within the grace is no failure.
TEST(Lifetime, R1AnExceptionWaitsForWhatTheOthersAreAboutToSubmit) {
  const LongGrace grace;
  on_ranks(2, [](ronde::Engine& engine) {
    std::vector<float> gradient(10, 1.0F);
    try {
      if (engine.rank() == 1) std::this_thread::sleep_for(milliseconds(300));
      const auto work = engine.allreduce("gradient", std::span(gradient), ronde::sum);
      throw std::runtime_error("caught below");
    } catch (const std::runtime_error&) {
      EXPECT_THAT(gradient, Each(2.0F));
    }
    std::vector<float> more(3, 1.0F);
    engine.allreduce_blocking("more", std::span(more), ronde::sum);
  });
}

// An exception that was there before the work is none of its business.
TEST(Lifetime, R1AWorkOfADestructorThatRunsForAnExceptionWaitsAsLongAsOthers) {
  on_ranks(2, [](ronde::Engine& engine) {
    struct AtTheEnd {
      explicit AtTheEnd(ronde::Engine& its_engine) : engine(its_engine) {}
      AtTheEnd(const AtTheEnd&) = delete;
      AtTheEnd& operator=(const AtTheEnd&) = delete;
      ~AtTheEnd() {
        if (engine.rank() == 1) std::this_thread::sleep_for(milliseconds(2300));
        const auto work = engine.allreduce("x", std::span(data), ronde::sum);
      }
      ronde::Engine& engine;
      std::vector<float> data = std::vector<float>(10, 1.0F);
    };
    EXPECT_THROW(
        {
          const AtTheEnd at_the_end(engine);
          throw std::runtime_error("caught at once");
        },
        std::runtime_error);
  });
}

TEST(Lifetime, ADetachedWorkGoesOnByItself) {
  std::promise<void> detached;
  on_ranks(2, [&detached](ronde::Engine& engine) {
    std::vector<float> data(10, 1.0F);
    if (engine.rank() == 1) {
      EXPECT_EQ(detached.get_future().wait_for(seconds(30)), std::future_status::ready)
          << "rank 0 waits for this one";
    }
    auto work = engine.allreduce("x", std::span(data), ronde::sum);
    work.detach();
    EXPECT_FALSE(work.valid());
    if (engine.rank() == 0) detached.set_value();
    engine.barrier_blocking();
    for (int i = 0; i < 30'000 && data[9] != 2.0F; ++i)
      std::this_thread::sleep_for(milliseconds(1));
    EXPECT_THAT(data, Each(2.0F));
  });
}

TEST(Lifetime, R1AForkedChildDoesNotWait) {
  on_ranks(2, [](ronde::Engine& engine) {
    if (engine.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(300));  // until after the fork
      return engine.barrier_blocking("x");
    }
    auto work = engine.barrier("x");
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto began = Clock::now();
      work = {};
      ::_exit(Clock::now() - began < seconds(30) ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  });
}

ronde_work* submit_in_c(ronde::Engine& engine, std::vector<float>& data) {
  ronde_request request;
  ronde_request_init(&request);
  const auto count = static_cast<std::int64_t>(data.size());
  request.name = "x";
  request.output = data.data();
  request.shape = &count;
  request.dimensions = 1;
  ronde_work* work = nullptr;
  EXPECT_EQ(ronde_allreduce_async(engine.get(), &request, &work, nullptr), RONDE_OK);
  return work;
}

TEST(Lifetime, R1InCTheGraceIsTheCallers) {
  const ronde::LocalJob job(2);
  const auto began = Clock::now();
  std::thread other([&job] {
    ronde::Engine engine(job, 1);
    try {
      engine.barrier_blocking();
      ADD_FAILURE() << "nobody else comes";
    } catch (const ronde::Error& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("'x' was given up on rank 0 and did not end within 0.2 s"));
    }
  });
  ronde::Engine engine(job, 0);
  std::vector<float> data(10);
  ronde_work_settle(submit_in_c(engine, data), 200'000'000);
  ronde_work_settle(nullptr, RONDE_GRACE_UNWIND);
  other.join();
  EXPECT_LT(Clock::now() - began, seconds(30));
}

}  // namespace
