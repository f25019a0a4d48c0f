// SPDX-License-Identifier: Apache-2.0
// Descriptors 0, 1 and 2 of processes that were started without them. Each case is a process of its
// own.
#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace ronde::base {
namespace {

bool is_null(int fd) {
  struct stat info {};
  struct stat null {};
  return ::fstat(fd, &info) == 0 && ::stat("/dev/null", &null) == 0 && info.st_rdev == null.st_rdev;
}

// Runs `check` in a child without the descriptors whose bits are set.
template <typename Check>
void in_child_without(unsigned closed, const Check& check) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (int fd = 0; fd <= 2; ++fd) {
      if ((closed >> static_cast<unsigned>(fd) & 1U) != 0) ::close(fd);
    }
    ::_exit(check() ? EXIT_SUCCESS : EXIT_FAILURE);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS) << "closed: " << closed;
}

TEST(StandardDescriptors, AreTakenWhereTheyWereClosedAndLeftAloneElsewhere) {
  const bool null_before[] = {is_null(0), is_null(1), is_null(2)};
  for (unsigned closed = 0; closed < 8; ++closed) {
    in_child_without(closed, [&] {
      take_standard_descriptors();
      for (int fd = 0; fd <= 2; ++fd) {
        const bool was_closed = (closed >> static_cast<unsigned>(fd) & 1U) != 0;
        if (is_null(fd) != (was_closed || null_before[fd])) return false;
        if (was_closed && (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0) return false;
      }
      const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      return next > 2;
    });
  }
}

TEST(StandardDescriptors, OfThisProcessWereThereFromTheBeginning) {
  EXPECT_TRUE(has_standard_error());
  in_child_without(4, [] { return has_standard_error(); });  // it was there when this was loaded
}

}  // namespace
}  // namespace ronde::base
