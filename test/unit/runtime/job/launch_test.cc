// SPDX-License-Identifier: Apache-2.0
// Which launcher's word counts, and when a job of one is refused (R3: it was never asked).
#include "runtime/job/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ronde::runtime {
namespace {

using testing::HasSubstr;
using Lines = std::vector<std::string>;

std::string said(const Lines& lines) {
  const auto launch = launch_of(lines);
  return launch ? launch->variable : "nothing";
}

TEST(Launch, TheInnermostLauncherCounts) {
  EXPECT_EQ(said({}), "nothing");
  EXPECT_EQ(said({"SLURM_STEP_NUM_TASKS=4", "OMPI_COMM_WORLD_SIZE=1", "PMI_SIZE=2"}),
            "OMPI_COMM_WORLD_SIZE=1");
  EXPECT_EQ(said({"SLURM_STEP_NUM_TASKS=4", "WORLD_SIZE=3", "RANK=0", "PMI_SIZE=2"}), "PMI_SIZE=2");
  EXPECT_EQ(said({"SLURM_STEP_NUM_TASKS=4", "WORLD_SIZE=3", "RANK=0"}), "SLURM_STEP_NUM_TASKS=4");
  EXPECT_EQ(said({"WORLD_SIZE=3", "RANK=0"}), "WORLD_SIZE=3");
  EXPECT_EQ(said({"WORLD_SIZE=3"}), "nothing") << "anybody may use that name";
  EXPECT_EQ(said({"SLURM_NTASKS=4", "SLURM_JOB_ID=7"}), "nothing") << "a shell in an allocation";
  EXPECT_EQ(said({"PMI_SIZE=many", "SLURM_STEP_NUM_TASKS=4"}), "SLURM_STEP_NUM_TASKS=4");
  EXPECT_EQ(said({"PMI_SIZE_OF=2", "PMI_SIZE="}), "nothing");
}

TEST(Launch, AJobOfOneIsRefusedWhereTheLauncherStartedMore) {
  const auto refused = check_launch(Lines{"PMI_RANK=1", "PMI_SIZE=4"}, 1, "Open MPI v4.1.4");
  EXPECT_EQ(refused.code(), base::Code::kUnsupported);
  EXPECT_THAT(refused.message(), HasSubstr("4 processes were started by the mpirun of MPICH"));
  EXPECT_THAT(refused.message(), HasSubstr("PMI_SIZE=4"));
  EXPECT_THAT(refused.message(), HasSubstr("Open MPI v4.1.4"));
  EXPECT_THAT(refused.message(), HasSubstr("RONDE_MPI=off"));
}

TEST(Launch, OtherJobsAreNot) {
  EXPECT_TRUE(check_launch(Lines{}, 1, "MPI").ok());
  EXPECT_TRUE(check_launch(Lines{"PMI_SIZE=1"}, 1, "MPI").ok());
  EXPECT_TRUE(check_launch(Lines{"PMI_SIZE=4"}, 4, "MPI").ok());
  EXPECT_TRUE(check_launch(Lines{"PMI_SIZE=4"}, 2, "MPI").ok()) << "a job may be split";
  EXPECT_TRUE(
      check_launch(Lines{"SLURM_STEP_NUM_TASKS=4", "OMPI_COMM_WORLD_SIZE=1"}, 1, "MPI").ok());
}

}  // namespace
}  // namespace ronde::runtime
