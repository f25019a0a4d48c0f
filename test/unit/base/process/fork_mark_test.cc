// SPDX-License-Identifier: Apache-2.0
// A forked child sees that it is one; the parent stays what it was.
#include "base/process/fork_mark.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ronde::base {
namespace {

TEST(ForkMark, TellsAChildFromItsParent) {
  const ForkMark mark;
  EXPECT_TRUE(mark.is_mine());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const ForkMark own;
    ::_exit(mark.is_mine() || !own.is_mine() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(mark.is_mine());
}

}  // namespace
}  // namespace ronde::base
