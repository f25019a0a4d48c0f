// SPDX-License-Identifier: Apache-2.0
// What starts where, and with which environment; golden lines of mpirun.
#include "launcher/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "launcher/shell.h"

namespace ronde::launcher {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Words = std::vector<std::string>;

Facts two_cores(Words environment = {}) {
  Facts facts;
  facts.self = {{"vm"}, "me"};
  facts.folder = "/work";
  facts.ronderun = "/opt/ronderun";
  facts.cores = 2;
  facts.slots = 2;
  facts.job = "0123456789abcdef";
  facts.meeting = "m";
  facts.secret = "s";
  facts.now = "today";
  facts.accelerator = "/lib/accelerator.so";
  facts.environment = std::move(environment);
  facts.read = [](const std::string&) -> base::Result<std::string> { return std::string("a:1\n"); };
  return facts;
}

base::Result<Plan> made(const Words& words, const Facts& facts) {
  const auto options = parse_options(words);
  EXPECT_TRUE(options.ok()) << options.status().message();
  return make_plan(*options, facts);
}

Plan planned(const Words& words, const Facts& facts = two_cores()) {
  auto plan = made(words, facts);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? std::move(*plan) : Plan();
}

std::string plan_refused(const Words& words, const Facts& facts = two_cores()) {
  const auto plan = made(words, facts);
  EXPECT_FALSE(plan.ok());
  return plan.status().message();
}

TEST(PlanTest, TheRanksOfThisHostAreItsCores) {
  const Plan plan = planned({"./p", "-np"});
  ASSERT_EQ(plan.job.hosts.size(), 1U);
  const HostPlan& host = plan.job.hosts.front();
  EXPECT_TRUE(host.here);
  EXPECT_EQ(host.start.first, 0);
  EXPECT_EQ(host.start.count, 2);
  EXPECT_EQ(host.start.size, 2);
  EXPECT_EQ(host.start.folder, "/work");
  EXPECT_THAT(host.start.argv, ElementsAre("./p", "-np"));
  EXPECT_THAT(host.start.environment, ElementsAre("RONDE_JOB=m"));
  EXPECT_EQ(text_of(plan), "vm: ranks 0 to 1: ./p -np");
}

TEST(PlanTest, OtherHostsGetTheEnvironmentAndASecret) {
  const Plan plan = planned({"-np", "4", "-H", "vm:2,b:2", "-x", "A=1", "--algorithm", "ring", "p"},
                            two_cores({"HOME=/root", "PATH=/bin", "RONDE_LOG_LEVEL=info", "SSH_X=1",
                                       "RANK=3", "OMPI_COMM_WORLD_RANK=1"}));
  ASSERT_EQ(plan.job.hosts.size(), 2U);
  EXPECT_THAT(plan.job.hosts[0].start.environment, Not(Contains("PATH=/bin"))) << "it has it";
  const StartRanks& there = plan.job.hosts[1].start;
  EXPECT_FALSE(plan.job.hosts[1].here);
  EXPECT_EQ(there.first, 2);
  EXPECT_THAT(there.environment,
              ElementsAre("PATH=/bin", "RONDE_LOG_LEVEL=info", "A=1", "RONDE_ALGORITHM=ring",
                          "RONDE_LOG_LEVEL=info", "RONDE_JOB_SECRET=s", "RONDE_JOB=m"));
}

TEST(PlanTest, ALostHostIsLeftOut) {
  Facts facts = two_cores();
  facts.lost = {"b"};
  EXPECT_EQ(text_of(planned({"-H", "a:1,b:1,c:1", "p"}, facts)), "a: rank 0: p\nc: rank 1: p");
  EXPECT_THAT(plan_refused({"-np", "3", "-H", "a:1,b:1,c:1", "p"}, facts), HasSubstr("slots"));
}

TEST(PlanTest, CoresAreSharedWithAReason) {
  Facts facts = two_cores();
  EXPECT_EQ(planned({"p"}, facts).job.hosts[0].start.binding, "auto");
  EXPECT_THAT(planned({"p"}, facts).binding_reason, HasSubstr("2 ranks on the 2 cores"));
  facts.nodes = 2;
  EXPECT_THAT(planned({"p"}, facts).binding_reason, HasSubstr("2 nodes of memory"));
  EXPECT_THAT(planned({"-np", "1", "p"}, facts).binding_reason, HasSubstr("the kernel places"));
  EXPECT_EQ(planned({"--bind-to", "core", "p"}, facts).job.hosts[0].start.binding, "core");
  EXPECT_THAT(plan_refused({"--bind-to", "socket", "p"}), HasSubstr("add --mpi"));
}

TEST(PlanTest, MpirunStartsTheRanksWhereItMust) {
  const std::string tail = " /opt/ronderun --for-mpirun m '' 'ronderun: job start, today\n' ./p";
  EXPECT_EQ(text_of(planned({"-np", "2", "--mpi", "./p"})), "mpirun -np 2 --bind-to none" + tail);
  EXPECT_EQ(text_of(planned({"-np", "3", "--mpi", "./p"})),
            "mpirun -np 3 --bind-to none --oversubscribe" + tail);
  EXPECT_EQ(text_of(planned({"-np", "2", "--mpi", "--tag", "--mpi-args", "--mca a b", "./p"})),
            "mpirun -np 2 --bind-to none --tag-output --mca a b" + tail);
  EXPECT_EQ(text_of(planned({"-np", "2", "--accelerate-mpi", "./p"})),
            "mpirun -np 2 --bind-to none -x LD_PRELOAD=/lib/accelerator.so" + tail);
  EXPECT_THAT(
      text_of(planned({"-np", "2", "-H", "a:2", "--mpi", "./p"})),
      HasSubstr("-H a:2 --bind-to none -x RONDE_JOB_SECRET --mca oob_tcp_keepalive_time 20"));
  Facts linked = two_cores();
  linked.mpi_in_program = "libmpi.so.40";
  EXPECT_TRUE(planned({"p"}, linked).job.hosts[0].start.mpirun);
  EXPECT_THAT(planned({"p"}, linked).messages, Contains(HasSubstr("linked with libmpi.so.40")));
  Facts without_ucx = two_cores();
  without_ucx.has_ucx = false;
  EXPECT_TRUE(planned({"-H", "a:1,b:1", "p"}, without_ucx).job.hosts[0].start.mpirun);
  EXPECT_FALSE(planned({"p"}, without_ucx).job.hosts[0].start.mpirun);
}

TEST(PlanTest, RefusesWhatCannotWork) {
  EXPECT_THAT(plan_refused({"--mpi-args", "--x", "p"}), HasSubstr("only with --mpi"));
  EXPECT_THAT(plan_refused({"--mpi", "p", ":"}), HasSubstr("\":\""));
  EXPECT_THAT(planned({"p", ":"}).messages, IsEmpty());
  EXPECT_THAT(plan_refused({"-x", "NONE", "p"}), HasSubstr("-x NONE: there is no such variable"));
  EXPECT_THAT(plan_refused({"--algorithm", "fast", "p"}), HasSubstr("RONDE_ALGORITHM"));
  EXPECT_THAT(planned({"p"}, two_cores({"RONDE_ALGORITM=ring"})).messages,
              ElementsAre(HasSubstr("RONDE_ALGORITM is not a setting")));
}

TEST(PlanTest, EveryStartKnowsItsNumberAndTheJob) {
  Facts facts = two_cores({"RONDE_RESTART_ATTEMPT=9"});
  facts.attempt = 2;
  const StartRanks again = planned({"--restarts", "3", "p"}, facts).job.hosts[0].start;
  EXPECT_THAT(again.environment, Contains("RONDE_RESTART_ATTEMPT=2"));
  EXPECT_THAT(again.environment, Contains("RONDE_RESTART_JOB=0123456789abcdef"));
  EXPECT_EQ(again.start_line, "ronderun: restart 2, today\n");
  facts.environment = {"RONDE_RESTART_JOB=mine"};
  EXPECT_THAT(planned({"--restarts", "3", "p"}, facts).job.hosts[0].start.environment,
              Contains("RONDE_RESTART_JOB=mine"));
}

TEST(ShellQuotedTest, APosixShellReadsTheSameWords) {
  const Words words{"a", "", "b c", "it's", "$x", "\"", "a\nb"};
  EXPECT_EQ(shell_quoted(words), "a '' 'b c' 'it'\\''s' '$x' '\"' 'a\nb'");
}

}  // namespace
}  // namespace ronde::launcher
