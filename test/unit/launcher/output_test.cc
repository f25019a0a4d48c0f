// SPDX-License-Identifier: Apache-2.0
// A standard error that nobody reads must not stop ronderun.
#include "launcher/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <string>

namespace ronde::launcher {
namespace {

// A standard error of this process's own choice, while the object lives.
class ErrorIs {
 public:
  explicit ErrorIs(int fd) : before_(dup(2)) {
    dup2(fd, 2);
    close(fd);
  }
  ~ErrorIs() {
    dup2(before_, 2);
    close(before_);
  }
  ErrorIs(const ErrorIs&) = delete;
  ErrorIs& operator=(const ErrorIs&) = delete;

 private:
  int before_;
};

std::string read_all(int fd) {
  std::string text(1 << 20, '\0');
  fcntl(fd, F_SETFL, O_NONBLOCK);
  std::size_t size = 0;
  for (ssize_t got = 0; (got = read(fd, text.data() + size, text.size() - size)) > 0;) {
    size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  return text;
}

// The two ends of something with a bounded room: the one to read, and the one to write.
std::array<int, 2> ends_of(const std::string& kind) {
  std::array<int, 2> ends{};
  if (kind == "pipe") {
    EXPECT_EQ(pipe(ends.data()), 0);
  } else if (kind == "socket") {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  } else {
    ends[0] = posix_openpt(O_RDWR | O_NOCTTY);
    EXPECT_EQ(grantpt(ends[0]) + unlockpt(ends[0]), 0);
    ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY);
  }
  return ends;
}

// With blocking writes these would never return.
TEST(OutputTest, NothingWaitsForAReader) {
  for (const std::string kind : {"pipe", "socket", "terminal"}) {
    const std::array<int, 2> ends = ends_of(kind);
    {
      const ErrorIs error(ends[1]);
      Output output;
      for (int line = 0; line < 20000 && !output.full(); ++line) output.say(std::string(100, 'x'));
      output.say("the last");
      EXPECT_TRUE(output.full()) << kind;
      EXPECT_FALSE(output.reader_gone()) << kind;
      EXPECT_EQ(fcntl(2, F_GETFL) & O_NONBLOCK, 0) << kind << ": others have inherited it";
    }
    close(ends[0]);
  }
}

TEST(OutputTest, LinesComeAtOnceAndInTheirOrder) {
  const std::array<int, 2> ends = ends_of("pipe");
  const ErrorIs error(ends[1]);
  Output output;
  output.add(true, "a rank's\n");
  output.say("ours");
  EXPECT_EQ(read_all(ends[0]), "a rank's\nronderun: ours\n");
  for (int line = 0; line < 1000; ++line) output.say(std::string(90, 'x'));
  std::string all = read_all(ends[0]);
  output.flush(base::SteadyClock());
  all += read_all(ends[0]);
  EXPECT_EQ(all.size(), 1000U * 101);
  close(ends[0]);
}

TEST(OutputTest, AReaderThatHasGoneIsNoticed) {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  const std::array<int, 2> ends = ends_of("pipe");
  {
    const ErrorIs error(ends[1]);
    Output output;
    output.say("one");
    EXPECT_FALSE(output.reader_gone());
    close(ends[0]);
    output.say("two");
    EXPECT_TRUE(output.reader_gone());
    EXPECT_FALSE(output.full());
    const Output late;  // the pipe cannot be opened again
    EXPECT_FALSE(late.reader_gone());
  }
  std::signal(SIGPIPE, before);
}

}  // namespace
}  // namespace ronde::launcher
