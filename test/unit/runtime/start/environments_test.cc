// SPDX-License-Identifier: Apache-2.0
// Environments as people have them: innocent ones, which make a job of one or of the right ranks,
// and guilty ones, in which each process would train alone without a info.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/process/environment.h"
#include "runtime/start/ancestry.h"
#include "runtime/start/identity.h"
#include "runtime/start/launchers.h"

namespace ronde::runtime {
namespace {

using Lines = std::vector<std::string>;

Lines operator+(Lines all, const Lines& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// What a process has, and what it and those above it were started with.
struct Situation {
  const char* what;
  Lines environment;
  std::string answer;  // an error contains it
  std::vector<Lines> started_with = {};
};

constexpr std::int64_t kPid = 4711;

std::string answer_to(const Situation& one) {
  const auto identity =
      identity_of(one.environment, kPid, [&] { return Ancestry{one.started_with}; });
  if (!identity.ok()) return identity.status().message();
  const std::string ranks =
      std::to_string(identity->rank) + " of " + std::to_string(identity->size);
  switch (identity->introduced) {
    case Identity::Introduced::kByNobody:
      return "alone";
    case Identity::Introduced::kByMpi:
      return ranks + " by MPI";
    case Identity::Introduced::kAtAMeeting:
      return ranks + " at " + text_of(identity->point);
  }
  return "";
}

const Lines kShell{"PATH=/bin", "HOME=/home/ada"};
const Lines kMpirun{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2",
                    "OMPI_COMM_WORLD_LOCAL_RANK=1", "PMIX_RANK=1", "PMIX_NAMESPACE=1.1"};
const Lines kAgent{"RANK=3",         "WORLD_SIZE=4",      "LOCAL_RANK=1",
                   "MASTER_ADDR=n1", "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=none"};
const Lines kAgentOfOne{"RANK=0",         "WORLD_SIZE=1",      "LOCAL_RANK=0",
                        "MASTER_ADDR=n1", "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=none"};
const Lines kBatchShell{"SLURM_JOB_ID=7",  "SLURM_NTASKS=4", "SLURM_PROCID=0",
                        "SLURM_LOCALID=0", "SLURM_NODEID=0", "SLURM_JOB_NODELIST=n[1-2]"};
const Lines kSrun =
    Lines{"SLURM_JOB_ID=7",         "SLURM_STEP_ID=0", "SLURM_PROCID=1",
          "SLURM_STEP_NUM_TASKS=2", "SLURM_NTASKS=2",  "SLURM_STEP_NODELIST=n[1-2]"};
const Lines kSrunOfFour{"SLURM_JOB_ID=7", "SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=4",
                        "SLURM_STEP_NODELIST=n[1-2]"};
const Lines kHand{"RONDE_RANK=1", "RONDE_SIZE=2", "RONDE_MEET=localhost:4000"};
const Lines kRonderun{"RONDE_RANK=1", "RONDE_SIZE=2", "RONDE_MEET=unix:job-12ab", "RONDE_JOB=12ab"};
const Lines kServers{R"(TF_CONFIG={"cluster": {"worker": ["a:1", "b:1"], "ps": ["c:1"]},)"
                     R"( "task": {"type": "worker", "index": 1}})"};
const Lines kWorkers{R"(TF_CONFIG={"cluster": {"worker": ["a:1", "b:1"]},)"
                     R"( "task": {"type": "worker", "index": 1}})"};
const Lines kPyTorchJob{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=job-master-0", "MASTER_PORT=23456",
                        "PET_NNODES=2"};
const Lines kMark{"RONDE_RANK_PROCESS=99 1 2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2"};
const std::string kChild = "is a child of rank 1 of 2 (pid 99)";

const Situation kInnocent[] = {
    // One launcher.
    {"AShell", kShell, "alone"},
    {"TheShellOfABatchJob", kBatchShell, "alone"},
    {"AnAllocationWithoutASrun", {"SLURM_JOB_ID=7", "SLURM_NTASKS=4"}, "alone"},
    {"MasterAddressOfABashrc", {"MASTER_ADDR=localhost"}, "alone"},
    {"MasterAddressAndPortOfABashrc", {"MASTER_ADDR=localhost", "MASTER_PORT=29500"}, "alone"},
    {"LocalRankOfANotebook", {"LOCAL_RANK=0"}, "alone"},
    {"ANameOfSomebodyElse", {"RANK=captain"}, "alone"},
    {"WorldSizeOfAGame", {"WORLD_SIZE=huge"}, "alone"},
    {"WorldSizeOneOfAnImage", {"WORLD_SIZE=1", "MASTER_ADDR=x"}, "alone"},
    {"AnImageThatKeepsAnAgentsWords", kAgentOfOne, "alone"},
    {"EmptyVariables", {"RONDE_RANK=", "WORLD_SIZE=", "PMI_RANK="}, "alone"},
    {"Hand", kHand, "1 of 2 at localhost:4000"},
    {"Ronderun", kRonderun, "1 of 2 at unix:job-12ab"},
    {"RonderunInAPod",
     kRonderun + kPyTorchJob,
     "1 of 2 at unix:job-12ab",
     {kRonderun + kPyTorchJob, kPyTorchJob}},
    {"RonderunInABatchJob", kRonderun + kBatchShell, "1 of 2 at unix:job-12ab"},
    {"Mpirun", kMpirun, "1 of 2 by MPI"},
    {"Mpich", {"PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=5"}, "1 of 2 by MPI"},
    {"IntelMpi",
     {"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"},
     "1 of 2 by MPI"},
    {"Mvapich", {"MV2_COMM_WORLD_RANK=1", "MV2_COMM_WORLD_SIZE=2"}, "1 of 2 by MPI"},
    {"Torchrun", kAgent, "3 of 4 at n1:29500"},
    {"PyTorchJobWithoutAnAgent", kPyTorchJob, "1 of 2 at job-master-0:23456"},
    {"Srun", kSrun, "1 of 2 at n1:20217"},
    {"AShellThatSrunHasStarted",
     {"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1", "SLURM_STEP_NODELIST=n1"},
     "alone"},
    {"Horovodrun", {"HOROVOD_RANK=1", "HOROVOD_SIZE=2", "RONDE_MEET=n1:4000"}, "1 of 2 at n1:4000"},
    {"TfConfig", kWorkers, "1 of 2 at a:1"},
    {"TfConfigOfOne", {R"(TF_CONFIG={"task": {"type": "worker", "index": 0}})"}, "alone"},
    {"TfConfigOfOneWithoutAnIndex", {R"(TF_CONFIG={"task": {"type": "worker"}})"}, "alone"},
    {"MpirunInAPodWithASparseCluster",
     kMpirun + Lines{R"(TF_CONFIG={"sparseCluster": {"worker": {"1": "b:1"}}})"}, "1 of 2 by MPI"},
    {"TfConfigWithOtherKeys", {R"(TF_CONFIG={"environment": "cloud"})"}, "alone"},
    {"Alone", kMpirun + Lines{"RONDE_ALONE=1"}, "alone"},
    {"AloneByItsOldName", kHand + Lines{"RONDE_MPI=off"}, "alone"},
    {"HalfOfAnAgentAndAloneBesides", {"RANK=1", "MASTER_ADDR=x", "RONDE_ALONE=1"}, "alone"},
    // Launchers inside launchers, from the inside to the outside.
    {"MpirunInAnAgentsWorker",
     kAgentOfOne + kMpirun,
     "1 of 2 by MPI",
     {kAgentOfOne + kMpirun, kAgentOfOne, kShell}},
    {"AnAgentUnderMpirun",
     kMpirun + kAgent,
     "3 of 4 at n1:29500",
     {kMpirun + kAgent, kMpirun, kShell}},
    {"AnAgentUnderSrun",
     kSrun + kAgent,
     "3 of 4 at n1:29500",
     {kSrun + kAgent, kSrun}},  // Slurm's daemon is root's
    {"AnAgentUnderSrunWithPmix",
     kSrun + kAgent + Lines{"PMIX_RANK=1"},
     "3 of 4 at n1:29500",
     {kSrun + kAgent + Lines{"PMIX_RANK=1"}, kSrun + Lines{"PMIX_RANK=1"}}},
    {"MpirunInAnAllocation", kSrun + kMpirun, "1 of 2 by MPI", {kSrun + kMpirun, kSrun, kShell}},
    {"AnAgentOfEachRankThatAgrees",
     kMpirun + Lines{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=n1", "MASTER_PORT=29500",
                     "TORCHELASTIC_RUN_ID=none"},
     "1 of 2 at n1:29500",
     {kMpirun + Lines{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=n1", "MASTER_PORT=29500",
                      "TORCHELASTIC_RUN_ID=none"},
      kMpirun, kShell}},
    {"WordsOfMpiThatAProgramRepeatsForOthers",
     kMpirun + Lines{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=n1", "MASTER_PORT=29500"},
     "1 of 2 by MPI",
     {kMpirun, kShell}},
    {"AnAgentThatHidesItsEnvironment",
     kSrun + kAgent,
     "3 of 4 at n1:29500",
     {kSrun + kAgent, {"python: agent of node 1"}, kSrun}},
    {"PmixUnderSrun",
     kSrun + Lines{"PMIX_RANK=1"},
     "1 of 2 by MPI",
     {kSrun + Lines{"PMIX_RANK=1"}}},
    {"KubeflowsWordsAroundAnAgent",
     kAgent,
     "3 of 4 at n1:29500",
     {kAgent, kPyTorchJob, kPyTorchJob}},
    {"KubeflowsWordsAroundMpirun",
     kWorkers + Lines{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=4"},
     "0 of 4 by MPI",
     {kWorkers + Lines{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=4"}, kWorkers}},
    {"ServersUnderMpirun", kMpirun + kServers, "1 of 2 by MPI"},
    {"AScriptThatMpirunHasStarted",
     kMpirun + kHand,
     "1 of 2 at localhost:4000",
     {kMpirun + kHand, kMpirun, kShell}},
    {"AGrandchildOfMpirun", kMpirun, "1 of 2 by MPI", {kMpirun, kMpirun, kShell}},
    {"WordsThatTheProcessHasSetItself", kMpirun + kAgent, "3 of 4 at n1:29500", {kMpirun, kShell}},
    {"HandAroundMpirun",
     kMpirun + Lines{"RONDE_RANK=0", "RONDE_SIZE=3"},
     "1 of 2 by MPI",
     {kMpirun + Lines{"RONDE_RANK=0", "RONDE_SIZE=3"}, Lines{"RONDE_RANK=0", "RONDE_SIZE=3"}}},
    // Children of a rank.
    {"TheRankItself",
     kMpirun + Lines{"RONDE_RANK_PROCESS=4711 1 2 x"},
     "1 of 2 by MPI",
     {kMpirun, kShell}},
    {"AnAgentThatARankHasStarted",
     kMpirun + kMark + kAgent,
     "3 of 4 at n1:29500",
     {kMpirun + kMark + kAgent, kMpirun + kMark, kMpirun, kShell}},
    {"AnAgentThatARankHasStartedUnseen", kMark + kAgent, "3 of 4 at n1:29500"},
    {"AToolThatIsToldToBeAlone", kMpirun + kMark + Lines{"RONDE_ALONE=1"}, "alone"},
};

TEST(Environments, TheInnocentAreAnsweredByTheRightJob) {
  for (const Situation& one : kInnocent) EXPECT_EQ(answer_to(one), one.answer) << one.what;
}

const Situation kGuilty[] = {
    // One launcher.
    {"NoRank",
     {"LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "WORLD_SIZE=2", "NODE_RANK=0", "MASTER_ADDR=localhost",
      "MASTER_PORT=29777"},
     "WORLD_SIZE is set, but RANK is not"},
    {"NoWorldSize",
     {"RANK=1", "LOCAL_RANK=1", "MASTER_ADDR=n1"},
     "RANK is set, but WORLD_SIZE is not"},
    {"OneLineNamesTheWayOut",
     {"RANK=1", "MASTER_ADDR=n1"},
     "RONDE_ALONE=1 makes this process a job of one"},
    {"OmpiRank", {"OMPI_COMM_WORLD_RANK=1"}, "OMPI_COMM_WORLD_SIZE is not"},
    {"OmpiSize", {"OMPI_COMM_WORLD_SIZE=2"}, "OMPI_COMM_WORLD_RANK is not"},
    {"OmpiLocalRank",
     {"OMPI_COMM_WORLD_LOCAL_RANK=0"},
     "OMPI_COMM_WORLD_LOCAL_RANK is set, but OMPI_COMM_WORLD_RANK is not"},
    {"MpichSize", {"PMI_SIZE=2"}, "PMI_RANK is not"},
    {"MpichRank", {"PMI_RANK=1"}, "PMI_SIZE is not"},
    {"IntelLocal",
     {"MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"},
     "MPI_LOCALRANKID is set, but PMI_RANK is not"},
    {"MvapichRank", {"MV2_COMM_WORLD_RANK=1"}, "MV2_COMM_WORLD_SIZE is not"},
    {"PmixNamespace", {"PMIX_NAMESPACE=1.1"}, "PMIX_RANK is not"},
    {"HandRank", {"RONDE_RANK=1"}, "RONDE_SIZE is not"},
    {"HandSize", {"RONDE_SIZE=2"}, "RONDE_RANK is not"},
    {"SrunSize", {"SLURM_STEP_NUM_TASKS=2"}, "SLURM_PROCID is not"},
    {"SrunInAContainerThatGetsSomeOfItsWords",
     {"SLURM_JOB_ID=7", "SLURM_NTASKS=2", "SLURM_PROCID=1"},
     "SLURM_PROCID is set, but SLURM_STEP_NUM_TASKS is not"},
    {"HorovodWithoutAPlace",
     {"HOROVOD_RANK=1", "HOROVOD_SIZE=2"},
     "names no place where they can meet"},
    {"HorovodHalf", {"HOROVOD_LOCAL_RANK=1"}, "HOROVOD_RANK is not"},
    {"HalfBesideAJobOfOne",
     {"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1", "RANK=1", "MASTER_ADDR=n1"},
     "WORLD_SIZE is not"},
    {"AMeetingPointBesideASizeOfOne",
     {"WORLD_SIZE=1", "RONDE_MEET=localhost:4000"},
     "set RONDE_RANK and RONDE_SIZE"},
    {"TfConfigInCapitals",
     {R"(TF_CONFIG={"Cluster": {"worker": ["a:1"]}, "Task": {"type": "worker"}})"},
     "a key 'Cluster', which nobody reads"},
    {"TfConfigWithoutACluster",
     {R"(TF_CONFIG={"task": {"type": "worker", "index": 1}})"},
     "makes this process worker 1, and names no cluster"},
    {"KubeflowsSparseCluster",
     {R"(TF_CONFIG={"sparseCluster": {"worker": {"1": "b:1"}},)"
      R"( "task": {"type": "worker", "index": 1}})"},
     "enableDynamicWorker"},
    // Launchers inside launchers, from the inside to the outside.
    {"AncestorsThatCannotBeRead", kMpirun + kAgent, "contradict each other"},
    {"BothOutsideOfTheContainer",
     kMpirun + kAgent,
     "contradict each other",
     {kMpirun + kAgent, kMpirun + kAgent}},
    {"BothSetAtOnce", kMpirun + kAgent, "contradict each other", {kMpirun + kAgent, kShell}},
    // Children of a rank.
    {"AChild", kMpirun + kMark, kChild, {kMpirun + kMark, kMpirun, kShell}},
    {"AForkedChild", kMpirun + kMark, kChild, {kMpirun, kMpirun, kShell}},
    {"AGrandchild", kMpirun + kMark, kChild, {kMpirun + kMark, kMpirun + kMark, kMpirun, kShell}},
    {"AChildUnseen", kMpirun + kMark, kChild},
    {"AChildOfARankThatWasToldByItsProgram", kMark, kChild, {kMark, kShell}},
    {"TheWayOut", kMark, "RONDE_ALONE=1 makes it a job of one"},
};

TEST(Environments, TheGuiltyAreRefusedInOneLine) {
  for (const Situation& one : kGuilty) {
    const std::string answer = answer_to(one);
    EXPECT_THAT(answer, ::testing::HasSubstr(one.answer)) << one.what;
    EXPECT_EQ(answer.find('\n'), std::string::npos) << one.what;
  }
}

TEST(RankMark, ReadsWhatItWrites) {
  const RankMark mark{99, 1, 2, "RANK=1 WORLD_SIZE=2"};
  const auto read = RankMark::parse(mark.text());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->text(), mark.text());
  for (const char* const bad : {"", "x", "99", "99 1", "99 -1 2 x", "a 1 2 x"}) {
    EXPECT_FALSE(RankMark::parse(bad).has_value()) << bad;
  }
}

TEST(Ancestry, OfThisProcessReachesTheFirstThatCanBeRead) {
  ::setenv("RONDE_TEST_OF_ANCESTRY", "set here", 1);
  const Ancestry ancestry = ancestry_of_this_process();
  ASSERT_FALSE(ancestry.started_with.empty());
  EXPECT_EQ(ancestry.distance_of({"RONDE_TEST_OF_ANCESTRY"}, base::process_environment()), 0U);
  ::unsetenv("RONDE_TEST_OF_ANCESTRY");
}

}  // namespace
}  // namespace ronde::runtime
