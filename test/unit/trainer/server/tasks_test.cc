// SPDX-License-Identifier: Apache-2.0
// Who a task is, and where variables lie.
#include "bindings/trainer/server/tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "bindings/trainer/server/placement.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {
namespace {

std::string error_of_tasks(std::vector<std::string> arguments) {
  try {
    (void)tasks_of(arguments);
  } catch (const TrainerError& error) {
    EXPECT_EQ(error.exit_code(), kExitConfiguration);
    return error.what();
  }
  return "";
}

TEST(ServerTasks, FlagsAreTakenHoweverTheyAreSpelt) {
  std::vector<std::string> arguments{
      "--ps-hosts=a:1,b:2", "-worker_hosts", "c:3", "--steps", "5", "--job-name", "ps",
      "--task_index=1"};
  const auto tasks = tasks_of(arguments);
  ASSERT_TRUE(tasks);
  EXPECT_THAT(tasks->servers, testing::ElementsAre("a:1", "b:2"));
  EXPECT_THAT(tasks->workers, testing::ElementsAre("c:3"));
  EXPECT_EQ(tasks->role, Role::kServer);
  EXPECT_EQ(tasks->index, 1U);
  EXPECT_THAT(arguments, testing::ElementsAre("--steps", "5"));
  EXPECT_EQ(tasks->text(), "--ps_hosts a:1,b:2 --worker_hosts c:3");
}

TEST(ServerTasks, WhatIsWrongIsOneLineThatNamesBothSides) {
  const std::vector<std::string> lists{"--ps_hosts=a:1", "--worker_hosts=c:3"};
  const auto with = [&lists](std::vector<std::string> more) {
    more.insert(more.end(), lists.begin(), lists.end());
    return error_of_tasks(more);
  };
  EXPECT_EQ(with({"--job_name=worker", "--task_index=1"}),
            "--task_index is 1, and --worker_hosts names 1: use an index from 0 to 0");
  EXPECT_EQ(error_of_tasks({"--ps_hosts=a:1", "--worker_hosts=a:1", "--job_name=ps"}),
            "ps 0 and worker 0 are both at a:1: give each task an address of its own");
  EXPECT_THAT(with({"--job_name=boss"}), testing::HasSubstr("no job_name 'boss'"));
  EXPECT_THAT(with({"--job_name=ps", "--task_index=x"}), testing::HasSubstr("'x'"));
  EXPECT_THAT(with({"--job_name=ps", "--job_name=ps"}), testing::HasSubstr("given twice"));
  EXPECT_THAT(error_of_tasks({"--job_name=ps"}), testing::HasSubstr("names no server"));
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
