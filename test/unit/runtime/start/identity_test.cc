// SPDX-License-Identifier: Apache-2.0
// Whose word counts, what every launcher says in its own variables, and every way to say nonsense.
#include "runtime/start/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/start/ancestry.h"

namespace ronde::runtime {
namespace {

using testing::HasSubstr;
using Variables = std::vector<std::string>;

// "rank 1 of 4 at node1:29500 of one host", "rank 1 of 4 over MPI", "alone", or the error.
// `above`: with what the processes above were started.
std::string said(const Variables& variables, const std::vector<Variables>& above = {}) {
  const auto identity = identity_of(variables, 0, [&] {
    Ancestry ancestry{{variables}};
    ancestry.started_with.insert(ancestry.started_with.end(), above.begin(), above.end());
    return ancestry;
  });
  if (!identity.ok()) {
    EXPECT_EQ(identity.status().code(), base::Code::kInvalidArgument);
    EXPECT_EQ(identity.status().message().find('\n'), std::string::npos);
    return identity.status().message();
  }
  const std::string ranks =
      "rank " + std::to_string(identity->rank) + " of " + std::to_string(identity->size);
  switch (identity->introduced) {
    case Identity::Introduced::kByNobody:
      EXPECT_EQ(ranks, "rank 0 of 1");
      return "alone";
    case Identity::Introduced::kByMpi:
      return ranks + " over MPI";
    case Identity::Introduced::kAtAMeeting:
      return ranks + " at " + text_of(identity->point) +
             (identity->point.one_host ? " on one host" : "");
  }
  return "";
}

Variables with(Variables variables, const Variables& more) {
  variables.insert(variables.end(), more.begin(), more.end());
  return variables;
}

const Variables kTorchrun{"RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1", "MASTER_ADDR=node1",
                          "MASTER_PORT=29500"};
const Variables kSlurm{"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NODELIST=n[07-09]",
                       "SLURM_JOB_ID=1000", "SLURM_STEP_ID=2"};
const Variables kByHand{"RONDE_RANK=1", "RONDE_SIZE=2", "RONDE_MEET=localhost:4000"};

std::string tf_config(const std::string& task, const std::string& cluster) {
  return R"(TF_CONFIG={"cluster": )" + cluster + R"(, "task": )" + task + "}";
}
std::string task(const std::string& type, int index) {
  return R"({"type": ")" + type + R"(", "index": )" + std::to_string(index) + "}";
}
const std::string kCluster = R"({"chief": ["a:1"], "worker": ["b:2", "[fd00::3]:3"]})";

const std::pair<Variables, const char*> kSaid[] = {
    {{"WORLD_SIZE=3"}, "alone"},  // anybody may use that name
    {{"RANK=3"}, "alone"},
    {{"RONDE_RANK=", "RONDE_SIZE=", "RONDE_MEET=", "PMI_SIZE=", "TF_CONFIG="}, "alone"},
    {{"PMI_SIZE_OF=2"}, "alone"},
    {{"RANK=0", "WORLD_SIZE=1"}, "alone"},
    {{"RONDE_RANK=0", "RONDE_SIZE=1"}, "alone"},
    {kByHand, "rank 1 of 2 at localhost:4000 on one host"},
    {{"RONDE_RANK=0", "RONDE_SIZE=2", "RONDE_MEET=node1:4000"}, "rank 0 of 2 at node1:4000"},
    {{"RONDE_RANK=0", "RONDE_SIZE=2", "RONDE_MEET=[fd00::1]:4000"},
     "rank 0 of 2 at [fd00::1]:4000"},
    {{"RONDE_RANK=0", "RONDE_SIZE=2", "RONDE_MEET=unix:job-1"}, "rank 0 of 2 at unix:job-1"},
    {{"RONDE_RANK=0", "RONDE_SIZE=2", "RONDE_MEET=127.0.0.1:65535"},
     "rank 0 of 2 at 127.0.0.1:65535 on one host"},
    {{"RONDE_RANK=0", "RONDE_SIZE=2", "RONDE_MEET=[::1]:1"}, "rank 0 of 2 at [::1]:1 on one host"},
    {{"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2"}, "rank 2 of 4 over MPI"},
    {{"JSM_NAMESPACE_SIZE=4", "JSM_NAMESPACE_RANK=2"}, "rank 2 of 4 over MPI"},
    {{"PMIX_RANK=2"}, "rank 2 of -1 over MPI"},
    {{"OMPI_COMM_WORLD_SIZE=1", "PMI_SIZE=2", "PMI_RANK=1"},
     "rank 0 of 1 over MPI"},                                       // the innermost
    {with(kSlurm, {"PMIX_RANK=1"}), "rank 1 of 4 over MPI"},        // Slurm says the size
    {with({"PMI_SIZE=many"}, kSlurm), "rank 1 of 4 at n07:21002"},  // no launcher writes this
    {kTorchrun, "rank 3 of 8 at node1:29500"},
    {with(kTorchrun, {"TORCHELASTIC_USE_AGENT_STORE=True"}),
     "rank 3 of 8 at node1:29501"},  // its agent listens at MASTER_PORT
    {{"TORCHELASTIC_USE_AGENT_STORE=True", "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a",
      "MASTER_PORT=65535"},
     "rank 0 of 2 at a:65534"},
    {with(kTorchrun, {"LOCAL_WORLD_SIZE=8"}), "rank 3 of 8 at node1:29500 on one host"},
    {with(kTorchrun, {"LOCAL_WORLD_SIZE=4"}), "rank 3 of 8 at node1:29500"},
    {with(kTorchrun, {"RONDE_MEET=node2:7"}), "rank 3 of 8 at node2:7"},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=fd00::1", "MASTER_PORT=5"},
     "rank 0 of 2 at [fd00::1]:5"},
    {kSlurm, "rank 1 of 4 at n07:21002"},
    {with(kSlurm, {"SLURM_STEP_NUM_NODES=1"}), "rank 1 of 4 at n07:21002 on one host"},
    {with(kSlurm, {"SLURM_STEP_RESV_PORTS=12000-12003"}), "rank 1 of 4 at n07:12000"},
    {with(kSlurm, {"RONDE_MEET=node2:7"}), "rank 1 of 4 at node2:7"},
    {with(kByHand, {"SLURM_STEP_NUM_TASKS=four"}), "rank 1 of 2 at localhost:4000 on one host"},
};
const std::pair<Variables, const char*> kNonsense[] = {
    {{"PMI_SIZE=many", "PMI_RANK=0"}, "PMI_SIZE=many is not valid"},
    {{"RANK=0", "WORLD_SIZE=2"}, "MASTER_ADDR is not set"},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a"}, "MASTER_PORT is not set"},
    {{"RANK=a", "WORLD_SIZE=2"}, "RANK=a is not valid"},
    {{"RANK=0", "WORLD_SIZE=two"}, "WORLD_SIZE=two is not valid"},
    {{"RANK=2", "WORLD_SIZE=2"}, "RANK=2 is no rank of a job of WORLD_SIZE=2"},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=x"},
     "MASTER_PORT=x is not valid: expected a whole number from 1 to 65535"},
    {{"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=4"}, "SLURM_PROCID=4 is no rank"},
    {{"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=1"}, "SLURM_STEP_NODELIST is not set"},
    {{"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=1", "SLURM_STEP_NODELIST=n[1"},
     "SLURM_STEP_NODELIST=n[1 is not valid"},
    {{"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=1", "SLURM_STEP_NODELIST=n1"},
     "SLURM_JOB_ID is not set"},
    {{"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=1", "SLURM_STEP_NODELIST=n1", "SLURM_JOB_ID=x"},
     "SLURM_JOB_ID=x is not valid"},
    {with(kSlurm, {"SLURM_STEP_RESV_PORTS=a-b"}), "SLURM_STEP_RESV_PORTS=a-b is no list of ports"},
};

TEST(Identity, WhatEveryLauncherSays) {
  for (const auto& [variables, answer] : kSaid) EXPECT_EQ(said(variables), answer);
  for (const auto& [variables, error] : kNonsense) EXPECT_THAT(said(variables), HasSubstr(error));
  EXPECT_EQ(said(with(kSlurm, {"OMPI_COMM_WORLD_SIZE=1"}), {kSlurm}), "rank 0 of 1 over MPI");
  EXPECT_EQ(said(with(kSlurm, kTorchrun), {kSlurm}), "rank 3 of 8 at node1:29500")
      << "started by srun";
  EXPECT_EQ(said(with(kSlurm, kByHand), {kSlurm}), "rank 1 of 2 at localhost:4000 on one host");
  EXPECT_EQ(said(with(kSlurm, {tf_config(task("worker", 0), kCluster)}), {kSlurm}),
            "rank 1 of 3 at a:1");
}

TEST(Identity, ByHandWithNonsense) {
  EXPECT_THAT(said({"RONDE_RANK=0", "RONDE_SIZE=2"}), HasSubstr("RONDE_MEET is not set"));
  EXPECT_THAT(said({"RONDE_MEET=a:1"}), HasSubstr("set RONDE_RANK and RONDE_SIZE"));
  for (const std::string rank : {"x", "-1", "1.5", " 1", "99999999999999999999"}) {
    EXPECT_THAT(said({"RONDE_RANK=" + rank, "RONDE_SIZE=2"}),
                HasSubstr("RONDE_RANK=" + rank + " is not valid: expected a whole number from 0"));
  }
  for (const std::string size : {"x", "0", "-2", "1048577"}) {
    EXPECT_THAT(said({"RONDE_RANK=0", "RONDE_SIZE=" + size}),
                HasSubstr("RONDE_SIZE=" + size + " is not valid: expected a whole number from 1"));
  }
  EXPECT_THAT(
      said({"RONDE_RANK=2", "RONDE_SIZE=2"}),
      HasSubstr("RONDE_RANK=2 is no rank of a job of RONDE_SIZE=2: ranks count from 0 to 1"));
  for (const std::string meet :
       {"node1", "node1:", ":4000", "node1:0", "node1:65536", "node1:x", "fd00::1:4000",
        "[node1]:4", "[fd00::1]", "[]:4", "no de:4", "tcp://a:4", "a:4:", "[127.0.0.1]:4"}) {
    EXPECT_THAT(said({"RONDE_RANK=0", "RONDE_SIZE=2", "RONDE_MEET=" + meet}),
                HasSubstr("RONDE_MEET=" + meet + " is not valid: expected host:port"))
        << meet;
  }
  EXPECT_THAT(said({"RONDE_RANK=0", "RONDE_SIZE=2", "RONDE_MEET=" + std::string(256, 'a') + ":1"}),
              HasSubstr("is not valid"));
}

TEST(Identity, TfConfig) {
  EXPECT_EQ(said({tf_config(task("chief", 0), kCluster)}), "rank 0 of 3 at a:1");
  EXPECT_EQ(said({tf_config(task("worker", 0), kCluster)}), "rank 1 of 3 at a:1");
  EXPECT_EQ(said({tf_config(R"({"type": "worker", "index": "1"})", kCluster)}),
            "rank 2 of 3 at a:1")
      << "some write the index as a text";
  const std::string no_chief = R"({"worker": ["localhost:1", "localhost:2"]})";
  EXPECT_EQ(said({tf_config(task("worker", 1), no_chief)}),
            "rank 1 of 2 at localhost:1 on one host");
  const std::string same = R"({"chief": ["n:1"], "worker": ["n:2"]})";
  EXPECT_EQ(said({tf_config(task("chief", 0), same)}), "rank 0 of 2 at n:1 on one host");
  const std::string master = R"({"master": ["m:1"], "worker": ["n:2"], "ps": ["p:3"]})";
  EXPECT_EQ(said({tf_config(task("master", 0), master)}), "rank 0 of 2 at m:1");
  EXPECT_EQ(said({tf_config(task("worker", 0), R"({"worker": ["a:1"]})")}), "alone");
  EXPECT_EQ(said({tf_config(task("worker", 1), R"({"worker": {"1": "b:2", "0": "a:1"}})")}),
            "rank 1 of 2 at a:1")
      << "numbered, as TensorFlow's ClusterSpec takes it";
  EXPECT_EQ(said({"TF_CONFIG={}"}), "alone");
  EXPECT_EQ(said({R"(TF_CONFIG={"cluster": {}, "task": {}})"}), "alone");
}

TEST(Identity, TfConfigOfOthersThanRanks) {
  const std::string cluster = R"({"chief": ["a:1"], "worker": ["b:2"], "ps": ["c:3"]})";
  for (const std::string type : {"ps", "evaluator"}) {
    EXPECT_THAT(said({tf_config(task(type, 0), cluster)}),
                HasSubstr("TF_CONFIG makes this process " + type + " 0, which is no rank"));
    EXPECT_EQ(said({tf_config(task(type, 0), cluster), "OMPI_COMM_WORLD_SIZE=4",
                    "OMPI_COMM_WORLD_RANK=3"}),
              "rank 3 of 4 over MPI")
        << "servers under mpirun";
  }
  EXPECT_EQ(said({tf_config(task("worker", 0), cluster), "OMPI_COMM_WORLD_SIZE=4",
                  "OMPI_COMM_WORLD_RANK=3"}),
            "rank 3 of 4 over MPI")
      << "a worker beside servers under mpirun";
}

TEST(Identity, TfConfigWithNonsense) {
  const std::string worker = task("worker", 0);
  const std::pair<std::string, std::string> cases[] = {
      {"TF_CONFIG=nonsense", "is no JSON object"},
      {"TF_CONFIG=[1]", "is no JSON object"},
      {"TF_CONFIG={\"cluster\": ", "is no JSON object"},
      {R"(TF_CONFIG={"cluster": 7, "task": {}})", "a cluster that is no JSON object"},
      {R"(TF_CONFIG={"cluster": {"worker": ["a:1"]}})", "names a cluster, but not this process"},
      {tf_config("{}", kCluster), "a task without a type"},
      {tf_config(R"({"type": 7})", kCluster), "a task without a type"},
      {tf_config("3", kCluster), "a task without a type"},
      {tf_config(R"({"type": "worker"})", kCluster), "task.index=nothing that is no whole number"},
      {tf_config(R"({"type": "worker", "index": -1})", kCluster),
       "task.index=-1 that is no whole number"},
      {tf_config(R"({"type": "worker", "index": 1.5})", kCluster),
       "task.index=1.5 that is no whole number"},
      {tf_config(R"({"type": "worker", "index": "x"})", kCluster),
       "task.index=x that is no whole number"},
      {tf_config(task("worker", 2), kCluster), "worker 2, but its cluster has 2 of them"},
      {tf_config(task("chief", 0), R"({"worker": ["a:1"]})"),
       "chief 0, but its cluster has 0 of them"},
      {tf_config(worker, R"({"worker": "a:1"})"), "whose 'worker' is no list of addresses"},
      {tf_config(worker, R"({"worker": [1]})"),
       "whose 'worker' holds something else than addresses"},
      {tf_config(worker, R"({"worker": ["a:1", "b"]})"),
       "address=b is not valid: expected host:port"},
      {tf_config(worker, R"({"chief": ["a:1", "b:1"], "worker": ["a:1"]})"), "more than one chief"},
      {tf_config(worker, R"({"chief": ["a:1"], "master": ["b:1"], "worker": ["a:1"]})"),
       "more than one chief"},
      {tf_config(worker, R"({"ps": 3, "worker": ["a:1"]})"), "whose 'ps' is no list"},
      {tf_config(worker, R"({"worker": {"1": "a:1", "2": "b:1"}})"),
       "whose 'worker' does not number its addresses from 0"},
  };
  for (const auto& [variable, expected] : cases) {
    EXPECT_THAT(said({variable}), HasSubstr(expected)) << variable;
    EXPECT_THAT(said({variable}), HasSubstr("TF_CONFIG")) << variable;
  }
}

TEST(Identity, TwoThatAgree) {
  const Variables mpi{"OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_RANK=3"};
  EXPECT_EQ(said(with(kTorchrun, mpi)), "rank 3 of 8 over MPI");
  EXPECT_EQ(said(with(kTorchrun, {"RONDE_RANK=3", "RONDE_SIZE=8"})), "rank 3 of 8 at node1:29500")
      << "by hand, without a meeting point of its own";
  EXPECT_EQ(said(with(mpi, {"RONDE_RANK=3", "RONDE_SIZE=8", "RONDE_MEET=a:1"})),
            "rank 3 of 8 at a:1");
}

TEST(Identity, TwoThatContradictEachOther) {
  const auto both = [](const std::string& text, const std::string& one, const std::string& other) {
    EXPECT_THAT(text, HasSubstr("two launchers contradict each other"));
    EXPECT_THAT(text, HasSubstr(one));
    EXPECT_THAT(text, HasSubstr(other));
  };
  const Variables mpi{"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=3"};
  both(said(with(kTorchrun, mpi)),
       "Open MPI's mpirun (OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4)",
       "torchrun or one like it (RANK=3 WORLD_SIZE=8)");
  both(said(with(kTorchrun, {"PMIX_RANK=0"})), "PMIX_RANK=0", "torchrun");
  both(said(with(kByHand, mpi)), "you (RONDE_RANK=1 RONDE_SIZE=2)", "Open MPI's mpirun");
  both(said(with(kByHand, kTorchrun)), "you (", "torchrun");
  const std::string tf = tf_config(task("worker", 0), kCluster);
  both(said(with(kTorchrun, {tf})), "torchrun", "TF_CONFIG: worker 0 of 3 ranks");
  both(said(with({"PMIX_RANK=2"}, {tf})), "PMIX_RANK=2", "TF_CONFIG");
  both(said({tf, "RONDE_RANK=2", "RONDE_SIZE=3"}), "you", "TF_CONFIG");
  EXPECT_THAT(said(with(mpi, {"RONDE_MEET=a:1"})), HasSubstr("introduces the ranks itself"));
}

TEST(Launch, AJobOfOneIsRefusedWhereTheLauncherStartedMore) {
  const auto identity = identity_of(Variables{"PMI_RANK=1", "PMI_SIZE=4"});
  ASSERT_TRUE(identity.ok());
  const auto refused = check_launch(*identity, 1, "Open MPI v4.1.4");
  EXPECT_EQ(refused.code(), base::Code::kUnsupported);
  EXPECT_THAT(refused.message(), HasSubstr("4 processes were started by the mpirun of MPICH"));
  EXPECT_THAT(refused.message(), HasSubstr("PMI_SIZE=4"));
  EXPECT_THAT(refused.message(), HasSubstr("Open MPI v4.1.4"));
  EXPECT_THAT(refused.message(), HasSubstr("RONDE_ALONE=1"));
}

TEST(Launch, OtherJobsAreNot) {
  const auto check = [](const Variables& variables, std::int64_t ranks) {
    const auto identity = identity_of(variables);
    return identity.ok() && check_launch(*identity, ranks, "MPI").ok();
  };
  EXPECT_TRUE(check({}, 1));
  EXPECT_FALSE(check({"PMIX_RANK=1"}, 1)) << "rank 1 is not alone, however many there are";
  EXPECT_TRUE(check({"PMIX_RANK=0"}, 1));
  EXPECT_TRUE(check({"PMI_SIZE=1"}, 1));
  EXPECT_TRUE(check({"PMI_SIZE=4", "PMI_RANK=0"}, 4));
  EXPECT_TRUE(check({"PMI_SIZE=4", "PMI_RANK=0"}, 2)) << "a job may be split";
  EXPECT_FALSE(check(with(kSlurm, {"PMIX_RANK=0", "SLURM_PROCID=0"}), 1));
}

}  // namespace
}  // namespace ronde::runtime
