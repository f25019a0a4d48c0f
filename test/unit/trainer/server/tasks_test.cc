// SPDX-License-Identifier: Apache-2.0
// Who a task is, and where variables lie.
#include "bindings/trainer/server/tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "bindings/trainer/server/placement.h"
#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/error_of.h"

namespace ronde::trainer::server {
namespace {

TaskFlags flags_of(std::optional<Role> role, std::uint32_t index = 0) {
  return {.servers = "a:1,b:2", .workers = "c:3", .role = role, .index = index};
}

TEST(ServerTasks, AreThoseOfTheFlags) {
  const auto tasks = tasks_of(flags_of(Role::kServer, 1));
  ASSERT_TRUE(tasks);
  EXPECT_THAT(tasks->servers, testing::ElementsAre("a:1", "b:2"));
  EXPECT_THAT(tasks->workers, testing::ElementsAre("c:3"));
  EXPECT_EQ(tasks->role, Role::kServer);
  EXPECT_EQ(tasks->index, 1U);
  EXPECT_EQ(tasks->text(),
            "--ps_hosts a:1,b:2\n--worker_hosts c:3\n--chief_hosts none\nRONDE_JOB none");
}

TEST(ServerTasks, AreThoseOfTfConfigWhereThatNamesServers) {
  const auto tasks_with = [](const std::string& cluster) {
    const std::string config = R"({"cluster": {"worker": ["c:3"])" + cluster +
                               R"(}, "task": {"type": "ps", "index": "0"}})";
    setenv("TF_CONFIG", config.c_str(), 1);
    const auto tasks = tasks_of(TaskFlags{});
    unsetenv("TF_CONFIG");
    return tasks;
  };
  const auto tasks = tasks_with(R"(, "ps": ["a:1"])");
  ASSERT_TRUE(tasks);
  EXPECT_EQ(tasks->role, Role::kServer);
  EXPECT_THAT(tasks->text(), testing::StartsWith("--ps_hosts a:1\n--worker_hosts c:3\n"));
  EXPECT_FALSE(tasks_with(""));
  EXPECT_THAT(error_of([&] { (void)tasks_with("}"); }),
              testing::HasSubstr("TF_CONFIG is no JSON object"));
}

TEST(ServerTasks, WhatIsWrongIsOneLineThatNamesBothSides) {
  const auto refusal = [](const TaskFlags& flags) {
    return error_of([&] { (void)tasks_of(flags); });
  };
  EXPECT_EQ(refusal(flags_of(Role::kWorker, 1)),
            "--task_index is 1, and --worker_hosts names 1: use an index from 0 to 0");
  EXPECT_EQ(refusal({.servers = "a:1", .workers = "a:1", .role = Role::kServer}),
            "ps 0 and worker 0 are both at a:1: give each task an address of its own");
  EXPECT_THAT(refusal(flags_of({})), testing::HasSubstr("--job_name is missing"));
  EXPECT_THAT(refusal({.role = Role::kServer}), testing::HasSubstr("names no server"));
  for (const char* const at : {"a", "a:", "a:99999", "a:0", "a:1x"}) {
    EXPECT_EQ(refusal({.servers = at, .workers = "b:1", .role = Role::kServer}),
              "ps 0 is at '" + std::string(at) +
                  "', which has no port from 1 to 65535: name it as host:port");
  }
  EXPECT_THAT(refusal(flags_of(Role::kChief)),
              testing::HasSubstr("this task is the chief, and --chief_hosts names 0"));
}

TEST(ServerPlacement, VariablesGoRoundTheServersInOrder) {
  const std::vector<VariableSpec> variables{{"weight", {4, 3}}, {"bias", {3}}, {"last", {}}};
  EXPECT_EQ(table_of(place(variables, 2, {})),
            "weight (4 x 3) on ps 0\nbias (3) on ps 1\nlast (1 element) on ps 0");
}

TEST(ServerPlacement, PartsCoverEachVariableOnce) {
  const std::vector<VariableSpec> variables{{"a", {7, 5}}, {"b", {3}}, {"c", {}}, {"d", {100}}};
  for (const char* const text : {"whole", "fixed=3", "min=16", "max=40", "max=1", "fixed=1000"}) {
    for (std::uint32_t servers = 1; servers <= 4; ++servers) {
      std::vector<std::size_t> ends(variables.size());
      std::uint32_t next = 0;
      for (const Piece& piece : place(variables, servers, partition_of(text))) {
        EXPECT_EQ(piece.first, ends[piece.variable]) << text;
        EXPECT_EQ(piece.size, elements_of(piece.shape)) << text;
        EXPECT_EQ(piece.server, next) << text;
        ends[piece.variable] += piece.size;
        next = (next + 1) % servers;
      }
      EXPECT_THAT(ends, testing::ElementsAre(35, 3, 1, 100)) << text;
    }
  }
  const auto cut = place(variables, 2, partition_of("max=40"));
  for (const Piece& piece : cut) EXPECT_LE(piece.size * sizeof(float), 40U);
  EXPECT_EQ(place(variables, 2, partition_of("min=70")).size(), 6U);  // a and d are cut in two
  EXPECT_THROW((void)partition_of("max=0"), TrainerError);
  EXPECT_THROW((void)partition_of("often"), TrainerError);
}

}  // namespace
}  // namespace ronde::trainer::server
