// SPDX-License-Identifier: Apache-2.0
// Exit codes and last lines, and small processes in the place of mpirun. Signals and orphans are
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

namespace ronde::launcher {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;
using std::chrono::seconds;

TEST(ProcessTest, ExitCodesAreThoseOfAShell) {
  EXPECT_EQ(exit_code_of(W_EXITCODE(0, 0)), 0);
  EXPECT_EQ(exit_code_of(W_EXITCODE(3, 0)), 3);
  EXPECT_EQ(exit_code_of(W_EXITCODE(0, SIGKILL)), 137);
}

TEST(ProcessTest, TheLastLineSaysWhatHappened) {
  EXPECT_EQ(verdict({0, 0}, true), "");
  EXPECT_EQ(verdict({3, 0}, false), "the job failed with exit code 3");
  EXPECT_THAT(verdict({3, 0}, true), HasSubstr("exit code 3; --verbose shows"));
  EXPECT_EQ(verdict({139, 0}, false), "a rank was killed by SIGSEGV (exit code 139)");
  EXPECT_EQ(verdict({255, 0}, false), "the job failed with exit code 255");
  EXPECT_EQ(verdict({130, SIGINT}, true), "the job was ended by SIGINT");
}

int exit_code_from(const Words& argv) {
  const auto outcome = run_to_end(argv, base::SteadyClock(), seconds(5));
  EXPECT_TRUE(outcome.ok()) << outcome.status().message();
  return outcome.ok() ? outcome->exit_code : -1;
}

TEST(ProcessTest, RunsACommand) {
  EXPECT_EQ(exit_code_from({"/bin/sh", "-c", "exit 0"}), 0);
  EXPECT_EQ(exit_code_from({"/bin/sh", "-c", "exit 7"}), 7);
  EXPECT_EQ(exit_code_from({"/bin/sh", "-c", "kill -9 $$"}), 137);
}

TEST(ProcessTest, TheCommandSeesNoBlockedSignals) {
  EXPECT_EQ(exit_code_from({"/bin/sh", "-c", "kill -TERM $$; exit 0"}), 143);
}

TEST(ProcessTest, ASignalEndsTheCommand) {
  const auto outcome = run_to_end(Words{"/bin/sh", "-c", "kill -TERM $PPID; exec sleep 60"},
                                  base::SteadyClock(), seconds(5));
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->interrupted, SIGTERM);
  EXPECT_EQ(outcome->exit_code, 128 + SIGTERM);
}

TEST(ProcessTest, TheGraceEnds) {
  const base::SteadyClock clock;
  const base::Instant start = clock.now();
  const auto outcome = run_to_end(
      Words{"/bin/sh", "-c", "trap '' TERM; kill -TERM $PPID; while :; do sleep 1; done"}, clock,
      std::chrono::milliseconds(100));
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->exit_code, 128 + SIGTERM);
  EXPECT_LT(clock.now() - start, seconds(10));
}

TEST(ProcessTest, ACommandThatIsNotThere) {
  const auto outcome = run_to_end(Words{"/no/such/command"}, base::SteadyClock(), seconds(5));
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.status().message(), HasSubstr("/no/such/command"));
  EXPECT_THAT(outcome.status().message(), HasSubstr(std::strerror(ENOENT)));
}

}  // namespace
}  // namespace ronde::launcher
