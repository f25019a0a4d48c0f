// SPDX-License-Identifier: Apache-2.0
// A coordinator and its workers over sockets, each on a thread of this process.
#include "bindings/trainer/server/coordinator/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {
namespace {

class Job {
 public:
  // So many that run already, and others that are started later.
  explicit Job(std::uint32_t workers, std::uint32_t later = 0) {
    static std::atomic<int> jobs = 0;
    const std::string prefix =
        "ipc://@ronde-coordinator-" + std::to_string(::getpid()) + "-" + std::to_string(++jobs);
    tasks_.servers = {prefix + "-ps"};
    tasks_.workers.reserve(workers + later);
    for (std::uint32_t i = 0; i < workers + later; ++i) {
      tasks_.workers.push_back(prefix + std::to_string(i));
    }
    tasks_.chief = {prefix + "-chief"};
    tasks_.role = Role::kChief;
    for (std::uint32_t i = 0; i < workers; ++i) start(i);
  }

  [[nodiscard]] const Tasks& tasks() const { return tasks_; }

  [[nodiscard]] Tasks tasks_of_worker(std::uint32_t worker) const {
    Tasks tasks = tasks_;
    tasks.role = Role::kWorker;
    tasks.index = worker;
    return tasks;
  }
  void start(std::uint32_t worker) {
    threads_.emplace_back([tasks = tasks_of_worker(worker)] {
      std::vector<float> data;  // what a worker keeps from one step to the next
      const std::string self = std::to_string(tasks.index);
      const Steps steps{
          {"data", [&](const Value& value) { return data = value.numbers, Value{self, data}; }},
          {"who", [&](const Value& value) { return Value{self + value.text, data}; }},
          {"fail", [](const Value&) -> Value { throw TrainerError("no such luck"); }},
          {"fail oddly", [](const Value&) -> Value { throw 7; }},
          {"die once", [&](const Value&) { return Value{self, data}; }}};
      run_steps(tasks, steps);
    });
  }

 private:
  Tasks tasks_;
  std::vector<std::jthread> threads_;
};

constexpr double kDeadline = 60.0;

TEST(Coordinator, RunsAStepOnEachWorkerOnOneAndOnAnyFreeOne) {
  Job job(3);
  Coordinator coordinator(job.tasks(), kDeadline, kDeadline);
  const std::vector<Value> made = coordinator.per_worker("data", {"", {1.5F, 2.5F}});
  ASSERT_EQ(made.size(), 3U);
  for (std::size_t i = 0; i < made.size(); ++i) EXPECT_EQ(made[i].text, std::to_string(i));
  const Value one = coordinator.run_on(1, "who", {"!", {}});
  EXPECT_EQ(one.text, "1!");
  EXPECT_THAT(one.numbers, testing::ElementsAre(1.5F, 2.5F));
  // Three times "data\n" and two numbers, and back "0" and two numbers; then "who\n!", and back
  // "1!" and two numbers. More where a worker is slow, since a step is sent again after a second.
  EXPECT_GE(coordinator.bytes(), 3U * (5 + 8 + 1 + 8) + 5 + 2 + 8);
  std::vector<Scheduled> scheduled;
  scheduled.reserve(20);
  for (int i = 0; i < 20; ++i) {
    scheduled.push_back(coordinator.schedule("who", {"/" + std::to_string(i), {}}));
  }
  coordinator.join();
  for (int i = 0; i < 20; ++i) {
    const std::string text = coordinator.fetch(scheduled[static_cast<std::size_t>(i)]).text;
    EXPECT_EQ(text.substr(1), "/" + std::to_string(i));
    EXPECT_THAT(text[0], testing::AnyOf('0', '1', '2'));
  }
  EXPECT_EQ(coordinator.retried(), 0U);
}

TEST(Coordinator, WhatAStepThrowsIsThrownByJoinAndByFetch) {
  Job job(1);
  Coordinator coordinator(job.tasks(), kDeadline);
  const Scheduled failed = coordinator.schedule("fail");
  const auto says = [](const std::string& text) {
    return testing::ThrowsMessage<TrainerError>(testing::HasSubstr(text));
  };
  EXPECT_THAT([&] { coordinator.join(); }, says("a step failed: no such luck"));
  (void)coordinator.schedule("who");
  EXPECT_NO_THROW(coordinator.join()) << "it was said already";
  (void)coordinator.schedule("fail oddly");
  EXPECT_THAT([&] { coordinator.join(); }, says("its exception is no std::exception"));
  EXPECT_THAT([&] { (void)coordinator.fetch(failed); }, says("a step failed: no such luck"));
  EXPECT_THAT([&] { (void)coordinator.run_on(0, "dance"); },
              says("there is no step 'dance' on worker 0"));
  EXPECT_EQ(coordinator.run_on(0, "who").text, "0");  // and it works on
}

TEST(Coordinator, AWorkerThatIsStartedAgainGetsItsDataFirstAndThenTheLostStep) {
  Job job(0, 1);
  const pid_t first = ::fork();
  if (first == 0) {
    run_steps(job.tasks_of_worker(0),
              {{"data", [](const Value& value) { return value; }},
               {"die once", [](const Value& value) { return ::raise(SIGKILL), value; }}});
    ::_exit(1);
  }
  Coordinator coordinator(job.tasks(), kDeadline);
  (void)coordinator.per_worker("data", {"", {7.0F}});
  const Scheduled lost = coordinator.schedule("die once");
  const std::jthread again([&job, first] {
    (void)::waitpid(first, nullptr, 0);
    job.start(0);
  });
  EXPECT_THAT(coordinator.fetch(lost).numbers, testing::ElementsAre(7.0F));
  EXPECT_EQ(coordinator.retried(), 1U);
}

// It ends once it has made its own.
TEST(Coordinator, AWorkerThatIsStartedAgainWhileOthersMakeTheirDataMakesItAgain) {
  Job job(0, 2);
  const pid_t first = ::fork();
  if (first == 0) {
    run_steps(job.tasks_of_worker(0), {{"data", [](const Value& value) { return value; }}},
              [] { (void)::raise(SIGKILL); });
    ::_exit(1);
  }
  std::atomic<bool> is_there_again = false;
  const std::jthread slow([&] {
    const auto make = [&](const Value& value) {
      is_there_again.wait(false);
      return value;
    };
    run_steps(job.tasks_of_worker(1), {{"data", make}});
  });
  const std::jthread again([&] {
    (void)::waitpid(first, nullptr, 0);
    job.start(0);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the chief hears of it
    is_there_again = true;
    is_there_again.notify_all();
  });
  Coordinator coordinator(job.tasks(), kDeadline, kDeadline);
  (void)coordinator.per_worker("data", {"", {7.0F}});
  EXPECT_THAT(coordinator.run_on(0, "who").numbers, testing::ElementsAre(7.0F));
}

}  // namespace
}  // namespace ronde::trainer::server
