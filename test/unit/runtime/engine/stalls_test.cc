// SPDX-License-Identifier: Apache-2.0
// What is printed while ranks wait: one notice for all tensors, once on each host and in
// each interval, with what is likely wrong. It redirects the standard error of the process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/job/job.h"
#include "runtime/job/local_job.h"
#include "test/support/bound_job.h"
#include "test/support/engines.h"
#include "test/support/eventually.h"

namespace ronde::runtime {
namespace {

using std::chrono::milliseconds;
using testing::allreduce_of;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::on_ranks;
using ::testing::SizeIs;

using Lines = std::vector<std::string>;

// The lines of a job, those of one rank each, as a program's standard error has them.
struct Output {
  Lines all;
  [[nodiscard]] Lines of_rank(int rank) const {
    Lines lines;
    const std::string prefix = "ronde[rank " + std::to_string(rank) + "] ";
    for (const std::string& line : all) {
      if (line.rfind(prefix, 0) == 0) lines.push_back(line.substr(prefix.size()));
    }
    return lines;
  }
};

Output output_of(const testing::EngineOptions& options, int ranks,
                 const std::function<void(int rank, Engine&)>& body) {
  ::testing::internal::CaptureStderr();
  const auto engines = testing::open_engines(ranks, options);
  on_ranks(ranks, [&](int rank) { body(rank, *engines[static_cast<std::size_t>(rank)]); });
  on_ranks(ranks, [&](int rank) { engines[static_cast<std::size_t>(rank)]->close().ignore(); });
  std::istringstream text(::testing::internal::GetCapturedStderr());
  Output output;
  for (std::string line; std::getline(text, line);) output.all.push_back(line);
  return output;
}

testing::EngineOptions options_on(const std::vector<std::int32_t>& leaders,
                                  const std::string& warning = "0.8") {
  testing::EngineOptions options;
  options.environment = {"RONDE_STALL_WARNING_SECONDS=" + warning};
  options.shape = base::JobShape::of_leaders(leaders).value();
  return options;
}

// The gradients of a ResNet-50: rank 3 submits them when two intervals are over.
void step_with_a_late_rank(int rank, Engine& engine) {
  if (rank == 3) std::this_thread::sleep_for(milliseconds(2000));
  std::vector<std::vector<float>> gradients(161, std::vector<float>(10, 1.0F));
  std::vector<Engine::WorkPtr> works;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    auto work = engine.submit(allreduce_of("layer" + std::to_string(i) + "/weight", gradients[i]));
    ASSERT_TRUE(work.ok());
    works.push_back(std::move(*work));
  }
  for (const Engine::WorkPtr& work : works) EXPECT_TRUE(engine.wait(*work).ok());
}

// Twice, since in the second step the tensors are entries of the plan.
void two_steps_with_a_late_rank(int rank, Engine& engine) {
  step_with_a_late_rank(rank, engine);
  step_with_a_late_rank(rank, engine);
}

// Without what a busy machine adds: an interval may end while the batch of the step is on its way.
Lines without_batches(Lines lines) {
  std::erase_if(lines, [](const std::string& line) {
    return line.find(" in a batch; ") != std::string::npos;
  });
  return lines;
}

// Two in each step: after 0.88 s and 1.68 s.
::testing::Matcher<const Lines&> notices(std::size_t steps) {
  // On a busy machine some of them may be submitted too late for the first.
  return ::testing::AllOf(
      SizeIs(::testing::Ge(steps)), SizeIs(::testing::Le(3 * steps)),
      Contains(HasSubstr("'layer0/weight' and 160 more have waited")),
      Each(ContainsRegex("warning: 'layer0/weight' and [0-9]+ more have waited .* s "
                         "for rank 3 .host .*, submitted on ranks 0-2")),
      Each(ContainsRegex("the job fails in 1[78][0-9][0-9] s .RONDE_STALL_FAILURE_SECONDS")));
}

// A job whose leaders, these ranks, each print the notices of so many steps.
Output output_with_notices(const std::function<Output()>& job, const std::vector<int>& leaders,
                           std::size_t steps) {
  Output output = testing::tries_of(job, [&](const Output& one) {
    return std::ranges::all_of(leaders, [&](int leader) {
      return ::testing::Matches(notices(steps))(without_batches(one.of_rank(leader)));
    });
  });
  for (const int leader : leaders) {
    EXPECT_THAT(without_batches(output.of_rank(leader)), notices(steps)) << "rank " << leader;
  }
  return output;
}

TEST(Stalls, ManyTensorsAndALateRankAreOneLinePerInterval) {
  const Output output = output_with_notices(
      [] { return output_of(options_on({0, 0, 0, 0}), 4, step_with_a_late_rank); }, {0}, 1);
  EXPECT_THAT(without_batches(output.of_rank(0)),
              Each(ContainsRegex("rank 3 .host .*, pid [0-9]+")));
  EXPECT_EQ(output.all.size(), output.of_rank(0).size()) << "only the leader of a host prints";
}

TEST(Stalls, OnSeveralHostsTheLeaderOfEachPrintsIt) {
  const Output output = output_with_notices(
      [] { return output_of(options_on({0, 0, 2, 2}), 4, two_steps_with_a_late_rank); }, {0, 2}, 2);
  EXPECT_EQ(output.all.size(), output.of_rank(0).size() + output.of_rank(2).size());
}

// Two ranks that submit different names, and then each other's.
Output output_of_names(const std::string& first, const std::string& second) {
  return output_of(options_on({0, 0}), 2, [&](int rank, Engine& engine) {
    std::vector<float> data(10);
    std::vector<float> later(10);
    const auto mine = engine.submit(allreduce_of(rank == 0 ? first : second, data));
    ASSERT_TRUE(mine.ok());
    // Three notices, since on a busy machine the report of one rank may come too late for the
    // first.
    const auto done = engine.wait_until(**mine, engine.clock().now() + milliseconds(2900));
    EXPECT_TRUE(done.ok());
    const auto other = engine.submit(allreduce_of(rank == 0 ? second : first, later));
    ASSERT_TRUE(other.ok());
    EXPECT_TRUE(engine.wait(**mine).ok());
    EXPECT_TRUE(engine.wait(**other).ok());
  });
}

void expect_said_of_names(const std::string& first, const std::string& second,
                          const std::string& part) {
  const auto said = Contains(HasSubstr(part));
  const Output output =
      testing::tries_of([&] { return output_of_names(first, second); },
                        [&](const Output& one) { return ::testing::Matches(said)(one.all); });
  EXPECT_THAT(output.all, said);
}

TEST(Stalls, CrossedNamesArePointedOut) {
  expect_said_of_names(
      "a", "b", "the names cross: rank 0 has submitted 'a' and not 'b', rank 1 'b' and not 'a'");
}

TEST(Stalls, NearlyEqualNamesArePointedOut) {
  expect_said_of_names("fc1.weight", "fc1.wieght",
                       "'fc1.weight' on rank 0 and 'fc1.wieght' on rank 1 are nearly equal: is one "
                       "misspelt?");
}

void expect_only_line(const std::function<Output()>& job, const std::string& part) {
  const auto only = ::testing::ElementsAre(HasSubstr(part));
  const Output output =
      testing::tries_of(job, [&](const Output& one) { return ::testing::Matches(only)(one.all); });
  EXPECT_THAT(output.all, only);
}

// After a notice there is none for a while. What is reported meanwhile, and is over by then, must
// not be taken for the same tensor in a later step.
Output output_of_a_name_used_again() {
  return output_of(options_on({0, 0}, "1.6"), 2, [&](int rank, Engine& engine) {
    std::vector<float> first(10);
    std::vector<float> second(10);
    const auto submit = [&](const std::string& name, std::vector<float>& data) {
      auto work = engine.submit(allreduce_of(name, data));
      EXPECT_TRUE(work.ok());
      return *work;
    };
    // Its notice comes after 1.76 s, so the next comes 1.6 s later at the earliest.
    if (rank == 1) std::this_thread::sleep_for(milliseconds(2000));
    const auto one = submit("one", first);
    // Is reported after 2.4 s and over after 2.8 s.
    std::this_thread::sleep_for(milliseconds(800));
    const auto other = submit("other", second);
    EXPECT_TRUE(engine.wait(*one).ok());
    EXPECT_TRUE(engine.wait(*other).ok());
    // Is in flight after 3.36 s, and not late.
    if (rank == 1) std::this_thread::sleep_for(milliseconds(1200));
    EXPECT_TRUE(engine.wait(*submit("other", second)).ok());
  });
}

TEST(Stalls, WhatIsOverWhenTheNoticeIsDueIsNotInIt) {
  expect_only_line(output_of_a_name_used_again, "'one' has waited");
}

// Two ranks with two late tensors: the first is over when its notice is due, the second is not.
Output output_with_an_empty_notice() {
  return output_of(options_on({0, 0}, "4"), 2, [&](int rank, Engine& engine) {
    const auto begin = engine.clock().now();
    const auto at = [&](int since) {
      std::this_thread::sleep_for(begin + milliseconds(since) - engine.clock().now());
    };
    std::vector<float> first(10);
    std::vector<float> second(10);
    // Is reported after 4 s, and over when the notice is due after 4.4 s.
    at(rank == 0 ? 0 : 4200);
    const auto one = engine.submit(allreduce_of("one", first));
    ASSERT_TRUE(one.ok());
    // Is late after 5.5 s, so its notice is due after 5.9 s; 8.4 s would be one interval later.
    at(rank == 0 ? 1500 : 7800);
    const auto two = engine.submit(allreduce_of("two", second));
    ASSERT_TRUE(two.ok());
    EXPECT_TRUE(engine.wait(**one).ok());
    EXPECT_TRUE(engine.wait(**two).ok());
  });
}

// A report whose tensors are over when the notice is due leads to no notice, and must not delay the
// next one.
TEST(Stalls, ANoticeThatWouldBeEmptyDoesNotSilenceTheNext) {
  expect_only_line(output_with_an_empty_notice, "'two' has waited");
}

// Every rank has submitted it, and its messages do not arrive for a while.
TEST(Stalls, ABatchThatDoesNotMoveIsOneLinePerIntervalToo) {
  testing::EngineOptions options = options_on({0, 0, 0});
  options.environment.emplace_back("RONDE_ALGORITHM=ring");
  options.faults.max_delay = 2'000'000'000;
  options.faults.seed = 3;
  options.environment.emplace_back("RONDE_STALL_FAILURE_SECONDS=2");
  const auto job = [&] {
    Output output = output_of(options, 3, [&](int, Engine& engine) {
      std::vector<float> data(100'000);
      const auto work = engine.submit(allreduce_of("stuck", data));
      EXPECT_FALSE(work.ok() && engine.wait(**work).ok());
    });
    std::erase_if(output.all, [](const std::string& line) {
      return line.find(" warning: ") == std::string::npos;
    });
    return output;
  };
  // After 0.88 s and 1.68 s.
  const auto warnings =
      ::testing::AllOf(SizeIs(::testing::Ge(1U)), SizeIs(::testing::Le(2U)),
                       Each(ContainsRegex("rank 0. warning: 'stuck' has waited .* s in a batch; "
                                          "the job fails in .*; ranks 0-2 were last in batch 1")));
  const Output output = testing::tries_of(
      job, [&](const Output& one) { return ::testing::Matches(warnings)(one.all); });
  EXPECT_THAT(output.all, warnings);
}

TEST(Stalls, WithoutANoticeOfTheCoordinatorTheLeaderOfAHostPrintsItsOwn) {
  const auto local = LocalJob::create(base::JobShape::of_leaders(std::vector{0, 1}).value());
  ASSERT_TRUE(local.ok());
  ::testing::internal::CaptureStderr();
  on_ranks(2, [&](int rank) {
    const auto open = [&](const base::Config& config, const base::Clock& clock) {
      auto job = (*local)->join(rank, config, clock);
      if (job.ok() && rank == 0) *job = std::make_unique<testing::BoundJob>(std::move(*job));
      return job;
    };
    const auto engine = Engine::open(open, {"RONDE_STALL_WARNING_SECONDS=0.2"},
                                     std::make_shared<base::SteadyClock>());
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    if (rank == 0) std::this_thread::sleep_for(std::chrono::seconds(8));
    std::vector<float> data(10);
    const auto work = (*engine)->submit(allreduce_of("x", data));
    ASSERT_TRUE(work.ok());
    EXPECT_TRUE((*engine)->wait(**work).ok());
    EXPECT_TRUE((*engine)->close().ok());
  });
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines,
              ContainsRegex("rank 1. warning: 'x' has waited [3-9].* s; rank 1 was last idle"));
}

}  // namespace
}  // namespace ronde::runtime
