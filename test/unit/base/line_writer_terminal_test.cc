// SPDX-License-Identifier: Apache-2.0
// Lines on a terminal that may not be opened again, as after su or setpriv in a container:
// they go out all the same, and a terminal that nobody reads does not block. A case that blocks
// runs into the time limit of the test.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <functional>
#include <sstream>
#include <string>

#include "base/line_writer.h"

namespace ronde::base {
namespace {

constexpr int kNobody = 65534;

// A process on a terminal of its own, whose file it may not open.
class OnTerminal {
 public:
  OnTerminal(bool controls, const std::function<bool(int)>& body)
      : main_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    EXPECT_TRUE(::grantpt(main_) == 0 && ::unlockpt(main_) == 0);
    const std::string path = ::ptsname(main_);
    const int terminal = ::open(path.c_str(), O_RDWR | O_NOCTTY);
    EXPECT_EQ(::chmod(path.c_str(), 0), 0);
    process_ = ::fork();
    if (process_ == 0) {
      ::setsid();
      if (controls && ::ioctl(terminal, TIOCSCTTY, 0) != 0) ::_exit(2);
      if (::geteuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) ::_exit(3);
      if (::open(path.c_str(), O_WRONLY | O_NOCTTY) >= 0) ::_exit(4);
      ::_exit(body(terminal) ? 0 : 1);
    }
    ::close(terminal);
  }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;
  ~OnTerminal() { ::close(main_); }

  // Waits for something that the process has written, and appends it, with '\n' at the ends of
  // lines. False: it has closed the terminal.
  bool read_more(std::string& text) const {
    std::array<char, 4096> bytes{};
    const ssize_t count = ::read(main_, bytes.data(), bytes.size());
    if (count <= 0) return false;  // EIO is the end
    text.append(bytes.data(), static_cast<std::size_t>(count));
    std::erase(text, '\r');
    return true;
  }
  // The exit code of the process; -1 if it was killed.
  [[nodiscard]] int wait() const {
    int status = -1;
    EXPECT_EQ(::waitpid(process_, &status, 0), process_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  const int main_;
  pid_t process_ = -1;
};

class LineWriterTerminal : public ::testing::TestWithParam<bool> {};

TEST_P(LineWriterTerminal, LinesGoOutThoughItMayNotBeOpenedAgain) {
  const OnTerminal process(GetParam(), [](int terminal) {
    LineWriter writer(terminal, "p ");
    writer.write("one\n");
    writer.write(std::string(1000, 'x') + "\n");
    writer.write("three\n");
    return true;
  });
  std::string text;
  while (process.read_more(text)) continue;
  EXPECT_EQ(text, "one\n" + std::string(1000, 'x') + "\nthree\n");
  EXPECT_EQ(process.wait(), 0);
}

struct LineCounts {
  int whole = 0;
  int lost = 0;
};

LineCounts count_lines(const std::string& text) {
  LineCounts lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line) && !stream.eof();) {
    int lost = 0;
    if (std::sscanf(line.c_str(), "p %d line", &lost) == 1) lines.lost += lost;
    if (line.find_first_not_of('x') == std::string::npos) ++lines.whole;
  }
  return lines;
}

// A terminal keeps some lines that nobody reads; every other one is counted.
TEST_P(LineWriterTerminal, WhatNobodyReadsIsLostAndCounted) {
  constexpr int kLines = 10'000;
  std::array<int, 2> written{};
  std::array<int, 2> enough{};
  ASSERT_TRUE(::pipe(written.data()) == 0 && ::pipe(enough.data()) == 0);
  const OnTerminal process(GetParam(), [&](int terminal) {
    LineWriter writer(terminal, "p ");
    for (int i = 0; i < kLines; ++i) {
      writer.write(std::string(static_cast<std::size_t>(i % 300), 'x') + "\n");
    }
    const bool good = ::write(written[1], "!", 1) == 1;
    pollfd stop{enough[0], POLLIN, 0};
    while (::poll(&stop, 1, 1) == 0) writer.catch_up();
    return good;
  });
  char byte = 0;
  ASSERT_EQ(::read(written[0], &byte, 1), 1);
  std::string text;
  LineCounts lines;
  while (lines.whole + lines.lost < kLines && process.read_more(text)) lines = count_lines(text);
  EXPECT_EQ(::write(enough[1], "!", 1), 1);
  EXPECT_EQ(process.wait(), 0);
  EXPECT_GT(lines.whole, 10);
  EXPECT_GT(lines.lost, 10);
  EXPECT_EQ(lines.whole + lines.lost, kLines);
  for (const int end : {written[0], written[1], enough[0], enough[1]}) ::close(end);
}

// As its controlling terminal a process may open it.
INSTANTIATE_TEST_SUITE_P(Controlling, LineWriterTerminal, ::testing::Values(true, false));

}  // namespace
}  // namespace ronde::base
