// SPDX-License-Identifier: Apache-2.0
// Exit codes, and small processes in the place of mpirun. Signals and orphans are
// tested on the whole program, in test/e2e/launcher.
#include "launcher/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "launcher/endings.h"

namespace ronde::launcher {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;
using std::chrono::milliseconds;
using std::chrono::seconds;

// What the shells below run in the place of mpirun: a rank that tells how often it had SIGTERM.
constexpr const char* kRank = R"(export OMPI_COMM_WORLD_RANK=0; sh -c '
  trap "asked=x\$asked" TERM; kill -TERM $RONDERUN
  for i in 1 2 3 4 5 6 7 8 9; do sleep 0.1; done
  [ "$asked" = x ] && exit 7; exit 8' & )";

TEST(ProcessTest, ExitCodesAreThoseOfAShell) {
  EXPECT_EQ(exit_code_of(W_EXITCODE(0, 0)), 0);
  EXPECT_EQ(exit_code_of(W_EXITCODE(3, 0)), 3);
  EXPECT_EQ(exit_code_of(W_EXITCODE(0, SIGKILL)), 137);
}

base::Result<Outcome> run(const Words& argv, const Graces& graces, std::int64_t ranks = 0) {
  Output output;
  Streams streams(output);
  const Signals signals;
  return run_to_end(argv, ranks, streams, signals, base::SteadyClock(), graces);
}

int exit_code_from(const Words& argv) {
  const auto outcome = run(argv, {seconds(0), seconds(5)});
  EXPECT_TRUE(outcome.ok()) << outcome.status().message();
  return outcome.ok() ? outcome->exit_code : -1;
}

TEST(ProcessTest, RunsACommand) {
  EXPECT_EQ(exit_code_from({"/bin/sh", "-c", "exit 0"}), 0);
  EXPECT_EQ(exit_code_from({"/bin/sh", "-c", "exit 7"}), 7);
  EXPECT_EQ(exit_code_from({"/bin/sh", "-c", "kill -9 $$"}), 137);
}

TEST(ProcessTest, TheCommandSeesNoBlockedSignals) {
  EXPECT_EQ(exit_code_from({"/bin/sh", "-c", "kill -PIPE $$; exit 0"}), 141);
  EXPECT_EQ(exit_code_from({"/bin/sh", "-c", "kill -TERM $$; exit 0"}), 143);
}

TEST(ProcessTest, ASignalEndsTheCommand) {
  const auto outcome =
      run({"/bin/sh", "-c", "kill -TERM $PPID; exec sleep 60"}, {seconds(0), seconds(5)});
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->interrupted, SIGTERM);
  EXPECT_EQ(outcome->exit_code, 128 + SIGTERM);
}

TEST(ProcessTest, TheGraceEnds) {
  const base::SteadyClock clock;
  const base::Instant start = clock.now();
  const auto outcome =
      run({"/bin/sh", "-c", "trap '' TERM; kill -TERM $PPID; while :; do sleep 1; done"},
          {seconds(0), milliseconds(100)});
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 128 + SIGTERM);
  EXPECT_LT(clock.now() - start, seconds(40));
}

TEST(ProcessTest, AfterSigtermTheJobHasItsOwnExitCode) {
  const std::string begin = "export RONDERUN=$PPID; ";
  const std::string wait =
      "rank=$!; while :; do wait $rank; code=$?; [ $code -lt 128 ] && break; done; ";
  // mpirun gets no signal while a rank of this host has had one.
  const auto outcome =
      run({"/bin/sh", "-c", begin + "trap 'exit 9' TERM USR2; " + kRank + wait + "exit $code"},
          {seconds(60), seconds(5)});
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 7) << "8: not once; 9: to mpirun";
  EXPECT_EQ(outcome->interrupted, SIGTERM);
  EXPECT_EQ(verdict(*outcome, {}, "h"), "the job failed with exit code 7");
}

TEST(ProcessTest, WithoutARankHereMpirunPassesTheRequestOn) {
  const auto outcome = run({"/bin/sh", "-c",
                            "trap 'exit 0' USR2; trap 'exit 9' TERM; kill -TERM $PPID; "
                            "while :; do sleep 0.1; done"},
                           {seconds(60), seconds(5)});
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 0);
  EXPECT_EQ(outcome->interrupted, SIGTERM);
  EXPECT_EQ(verdict(*outcome, {}, "h"), "");
}

TEST(ProcessTest, AnMpirunThatHasStartedNothingIsEndedAtOnce) {
  const auto outcome =
      run({"/bin/sh", "-c", "kill -TERM $PPID; exec sleep 60"}, {seconds(60), seconds(5)});
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 128 + SIGTERM);
}

TEST(ProcessTest, AfterTheStopGraceMpirunEndsTheJob) {
  const base::SteadyClock clock;
  const base::Instant start = clock.now();
  const auto outcome = run({"/bin/sh", "-c",
                            "trap ':' USR2; trap 'exit 0' TERM; kill -TERM $PPID; "
                            "while :; do sleep 0.1; done"},
                           {milliseconds(600), seconds(60)});
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 128 + SIGTERM);
  EXPECT_GE(clock.now() - start, milliseconds(600));
  EXPECT_LT(clock.now() - start, seconds(30));
}

TEST(ProcessTest, ASignalEndsAPause) {
  const base::SteadyClock clock;
  const Signals signals;
  Output output;
  EXPECT_EQ(signals.sleep(milliseconds(20), output, clock), 0);
  for (const int signal : {SIGCHLD, SIGUSR1, SIGTERM}) raise(signal);
  EXPECT_EQ(signals.sleep(std::chrono::hours(1), output, clock), SIGTERM);
}

TEST(ProcessTest, ACommandThatIsNotThere) {
  const auto outcome = run({"/no/such/command"}, {seconds(0), seconds(5)});
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.status().message(), HasSubstr("/no/such/command"));
  EXPECT_THAT(outcome.status().message(), HasSubstr(std::strerror(ENOENT)));
}

}  // namespace
}  // namespace ronde::launcher
