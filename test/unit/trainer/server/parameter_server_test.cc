// SPDX-License-Identifier: Apache-2.0
// A task of a training, and servers that are killed and started again, on threads of this process.
#include "bindings/trainer/server/parameter_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/keep/checkpoint.h"
#include "bindings/trainer/server/message_socket.h"
#include "test/unit/trainer/error_of.h"
#include "test/unit/trainer/temporary_folder.h"

namespace ronde::trainer::server {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tasks tasks_of_test(std::uint32_t servers) {
  static std::atomic<int> jobs = 0;
  const std::string prefix =
      "ipc://@ronde-servers-" + std::to_string(::getpid()) + "-" + std::to_string(++jobs) + "-";
  Tasks tasks;
  for (std::uint32_t i = 0; i < servers; ++i) tasks.servers.push_back(prefix + std::to_string(i));
  tasks.workers = {prefix + "worker"};
  return tasks;
}

// A server that may be killed: it ends without a word.
class Server {
 public:
  Server(const Tasks& tasks, std::uint32_t index) {
    ServerOptions options;
    options.index = index;
    options.servers = static_cast<std::uint32_t>(tasks.servers.size());
    options.job = ParameterServerOptions{}.job_of(tasks);
    thread_ = std::jthread([options, at = tasks.servers[index],
                            access = access_for(tasks.all())](const std::stop_token& stop) {
      MessageSocket socket(
          {.self = {Role::kServer, options.index, options.start}, .access = access, .say = {}});
      socket.listen(at);
      ServerState state(options);
      while (!stop.stop_requested()) {
        for (const Message& message : socket.receive(0.01)) {
          for (const Message& one : state.on_message(steady_seconds(), message)) socket.send(one);
        }
        for (const Message& one : state.on_tick(steady_seconds())) socket.send(one);
      }
    });
  }

 private:
  std::jthread thread_;
};

void fill_gradient(Parameter& parameter, float value) {
  std::ranges::fill(parameter.gradient(), value);
}

TEST(ParameterServerTask, AServerThatBeginsAnewGoesOnAtTheStepOfItsValues) {
  const Tasks tasks = tasks_of_test(1);
  auto server = std::make_unique<Server>(tasks, 0);
  Parameter w("w", {1});
  std::string lines;
  ParameterServer task(tasks, {&w},
                       {.say = [&](const std::string& line) { lines += line + "\n"; }});
  fill_gradient(w, -1.0F);
  for (int i = 0; i < 5; ++i) {
    task.pull();
    ASSERT_TRUE(task.push(1.0, 1.0));
  }
  task.pull();
  ASSERT_EQ(task.global_step(), 5U);
  server.reset();
  server = std::make_unique<Server>(tasks, 0);
  task.pull();
  EXPECT_EQ(task.global_step(), 5U);
  EXPECT_EQ(w.value()[0], 5.0F);
  EXPECT_THAT(lines, testing::HasSubstr("with the values that the chief has, of step 5"));
}

TEST(ParameterServerTask, AGroupDoesNotBeginAnewBesideOthers) {
  const Tasks tasks = tasks_of_test(2);
  auto first = std::make_unique<Server>(tasks, 0);
  const Server second(tasks, 1);
  Parameter v("v", {1});
  Parameter w("w", {1});
  {
    ParameterServer task(tasks, {&v, &w}, {});
    for (int i = 0; i < 5; ++i) {
      task.pull();
      ASSERT_TRUE(task.push(1.0, 1.0));
    }
  }
  first.reset();
  first = std::make_unique<Server>(tasks, 0);
  for (int i = 0; i < 2; ++i) {  // nor does it once the chief is started again
    ParameterServer task(tasks, {&v, &w}, {});
    EXPECT_THAT(error_of([&] { task.pull(); }),
                testing::HasSubstr("ps 0 has no variables, and ps 1 has those of step 5, which "
                                   "belong together: there is no checkpoint, so end all tasks and "
                                   "begin anew"));
  }
}

// Its state is asked for in the middle of a fetch of all that is saved.
TEST(ParameterServerTask, AServerThatBeginsAnewFromACheckpointTakesNothingFromOthers) {
  const Tasks tasks = tasks_of_test(2);
  const Server first(tasks, 0);
  auto second = std::make_unique<Server>(tasks, 1);
  Parameter v("v", {1});
  Parameter w("w", {1});
  const RuleOptions momentum{.momentum = 0.5};
  UpdateRule mirror(momentum, {&v, &w});
  ParameterServer task(tasks, {&v, &w},
                       {.optimizer = momentum, .mirror = &mirror, .say = [](auto&) {}});
  fill_gradient(v, -1.0F);
  fill_gradient(w, -1.0F);
  const TemporaryFolder folder;
  std::vector<float> saved;
  for (int i = 0; i < 4; ++i) {
    task.pull();
    ASSERT_TRUE(task.push(1.0, 1.0));
    if (i != 1) continue;
    task.state();
    std::vector<StateTensor> tensors{{"v", {1}, v.value()}, {"w", {1}, w.value()}};
    for (const StateTensor& one : mirror.state()) tensors.push_back(one);
    for (const StateTensor& one : tensors) saved.push_back(one.values[0]);
    CheckpointState progress;
    progress.global_step = progress.optimizer_steps = 2;
    write_checkpoint(disk(), folder.path() + "/step", progress, to_safetensors(tensors));
    task.set_saved([&] { return folder.path() + "/step"; });
  }
  task.state();
  const float of_first = v.value()[0];
  ASSERT_GT(of_first, saved[0]);
  second.reset();
  second = std::make_unique<Server>(tasks, 1);
  task.state();
  EXPECT_EQ(v.value()[0], of_first);
  EXPECT_EQ(w.value()[0], saved[1]);
  EXPECT_EQ(mirror.state()[1].values[0], saved[3]);
}

TEST(ParameterServerTask, RowsDoNotBeginAnewInSilence) {
  const Tasks tasks = tasks_of_test(1);
  auto server = std::make_unique<Server>(tasks, 0);
  ParameterServer task(tasks, {},
                       {.tables = {{.name = "t", .rows = 4, .width = 1}}, .say = [](auto&) {}});
  std::vector<Rows> rows(1);
  rows[0].ids = {1};
  task.pull(rows);
  rows[0].gradients = {-1.0F};
  ASSERT_TRUE(task.push(1.0, 1.0, rows));
  task.pull(rows);
  ASSERT_EQ(task.global_step(), 1U);
  server.reset();
  server = std::make_unique<Server>(tasks, 0);
  EXPECT_THAT(error_of([&] { task.pull(rows); }),
              testing::HasSubstr("ps 0 was started again, and the rows of t are lost, of which "
                                 "there is no checkpoint: use a standby"));
}

// One side does not wait for what the other one ignores.
TEST(ParameterServerTask, WhatNoServerTakesIsNotSent) {
  const Tasks tasks = tasks_of_test(1);
  const Server server(tasks, 0);
  Parameter w("w", {300});
  ParameterServer task(tasks, {&w}, {.tables = {{.name = "t", .rows = 4, .width = 2}}});
  std::vector<Rows> rows(1);
  rows[0].ids = {1, 2, 3};
  task.pull(rows);
  EXPECT_THAT(
      error_of([&] { task.push(1.0, 0.1, rows); }),
      testing::HasSubstr("rows of 't' come with 0 gradients, and not with 2 for each of 3"));
  rows[0].gradients.assign(6, 0.0F);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [samples, rate] : {std::pair{1.0, nan}, {nan, 0.1}, {-1.0, 0.1}}) {
    EXPECT_THAT(error_of([&] { task.push(samples, rate, rows); }),
                testing::HasSubstr("both must be finite, and samples not below 0"));
  }
  for (const std::size_t at : {0U, 299U}) {
    fill_gradient(w, 0.0F);
    w.gradient()[at] = at == 0 ? kInfinity : -std::numeric_limits<float>::quiet_NaN();
    EXPECT_THAT(error_of([&] { task.push(1.0, 0.1, rows); }),
                testing::HasSubstr("a gradient of 'w' is not a finite number"));
  }
  fill_gradient(w, 0.0F);
  EXPECT_TRUE(task.push(1.0, 0.1, rows));
  rows[0].table = 3;
  EXPECT_THAT(error_of([&] { task.pull(rows); }), testing::HasSubstr("there is no table 3"));
}

TEST(ParameterServerTask, ValuesThatAreNotFiniteAreNoState) {
  const Tasks tasks = tasks_of_test(1);
  const Server server(tasks, 0);
  Parameter w("w", {1});
  ParameterServer task(tasks, {&w}, {.say = [](auto&) {}});
  task.pull();
  task.state();
  for (int i = 0; i < 2; ++i) {  // finite ones, until their sum is not
    fill_gradient(w, std::numeric_limits<float>::max());
    ASSERT_TRUE(task.push(1.0, 1.0));
    task.pull();
  }
  EXPECT_THAT(error_of([&] { task.state(); }),
              testing::HasSubstr("not every number of 'w' on the servers is finite at step 2"));
}

}  // namespace
}  // namespace ronde::trainer::server
