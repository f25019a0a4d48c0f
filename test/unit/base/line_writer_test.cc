// SPDX-License-Identifier: Apache-2.0
// Lines for a reader who does not read: nothing blocks, no line is cut, and what was lost is
// counted. A case that blocks runs into the time limit of the test.
#include "base/line_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace ronde::base {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kPage = 4096;

// Both ends of something that holds bytes until they are read; they block, as a program's do.
struct Ends {
  int reader = -1;
  int writer = -1;

  Ends() = default;
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;
  ~Ends() {
    ::close(reader);
    ::close(writer);
  }
  // Reads `most` bytes, or all that there is now.
  std::string read(std::size_t most = 1 << 20) const {
    ::fcntl(reader, F_SETFL, O_NONBLOCK);
    std::string text;
    std::array<char, kPage> bytes{};
    while (text.size() < most) {
      const ssize_t count =
          ::read(reader, bytes.data(), std::min(bytes.size(), most - text.size()));
      if (count <= 0) break;
      text.append(bytes.data(), static_cast<std::size_t>(count));
    }
    return text;
  }
};

struct Pipe : Ends {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    reader = ends[0];
    writer = ends[1];
    EXPECT_EQ(::fcntl(writer, F_SETPIPE_SZ, 2 * kPage), static_cast<int>(2 * kPage));
  }
  void fill(std::size_t bytes) const {
    const std::string filling(bytes, '.');
    EXPECT_EQ(::write(writer, filling.data(), bytes), static_cast<ssize_t>(bytes));
  }
};

struct Terminal : Ends {
  Terminal() {
    reader = ::posix_openpt(O_RDWR | O_NOCTTY);
    EXPECT_EQ(::grantpt(reader), 0);
    EXPECT_EQ(::unlockpt(reader), 0);
    writer = ::open(::ptsname(reader), O_RDWR | O_NOCTTY);
    EXPECT_GE(writer, 0);
  }
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(LineWriterR8, LinesGoOutAsTheyAre) {
  const Pipe pipe;
  LineWriter writer(pipe.writer, "p ");
  writer.write("one\n");
  writer.catch_up();
  writer.write("two\n");
  EXPECT_EQ(pipe.read(), "one\ntwo\n");
}

TEST(LineWriterR8, WhatAFullPipeDoesNotTakeIsCountedAndSaidLater) {
  const Pipe pipe;
  pipe.fill(2 * kPage);
  LineWriter writer(pipe.writer, "p ");
  for (int i = 0; i < 12; ++i) writer.write("lost\n");
  writer.catch_up();
  EXPECT_EQ(pipe.read(), std::string(2 * kPage, '.'));
  writer.write("next\n");
  writer.write("after\n");
  EXPECT_THAT(lines_of(pipe.read()),
              ElementsAre("p 12 lines were lost here: standard error had no room for more", "next",
                          "after"));
}

TEST(LineWriterR8, TheCountIsSaidWithoutAnotherLineToo) {
  const Pipe pipe;
  pipe.fill(2 * kPage);
  {
    LineWriter writer(pipe.writer, "p ");
    writer.write("lost\n");
    static_cast<void>(pipe.read());
    writer.catch_up();
    EXPECT_THAT(pipe.read(), HasSubstr("p 1 line was lost here"));
    pipe.fill(2 * kPage);
    writer.write("lost\n");
    static_cast<void>(pipe.read());
  }
  EXPECT_THAT(pipe.read(), HasSubstr("p 1 line was lost here")) << "its destructor says it";
}

TEST(LineWriterR8, ALineForWhichThereIsTooLittleRoomIsNotCut) {
  const Pipe pipe;
  pipe.fill(kPage + kPage - 100);
  LineWriter writer(pipe.writer, "p ");
  writer.write(std::string(200, 'x') + "\n");
  EXPECT_EQ(pipe.read(), std::string(2 * kPage - 100, '.'));
}

TEST(LineWriterR8, ALineLongerThanThePipeGoesOutInPartsAndWhole) {
  const Pipe pipe;
  LineWriter writer(pipe.writer, "p ");
  const std::string line = std::string(5 * kPage, 'x') + "\n";
  writer.write(line);
  writer.write("lost\n");
  std::string all;
  for (int i = 0; i < 5; ++i) {
    all += pipe.read();
    writer.catch_up();
  }
  EXPECT_THAT(lines_of(all),
              ElementsAre(std::string(5 * kPage, 'x'), HasSubstr("1 line was lost here")));
}

TEST(LineWriterR8, ASocketAndATerminalThatNobodyReadsDoNotBlockEither) {
  Ends socket;
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  socket.reader = ends[0];
  socket.writer = ends[1];
  const Terminal terminal;
  for (const Ends* each :
       {static_cast<const Ends*>(&socket), static_cast<const Ends*>(&terminal)}) {
    LineWriter writer(each->writer, "p ");
    const std::string line(99, 'x');
    constexpr int kLines = 10'000;
    for (int i = 0; i < kLines; ++i) writer.write(line + "\n");
    std::string all;
    for (int i = 0; i < 100; ++i) {
      all += each->read();
      writer.catch_up();
    }
    std::erase(all, '\r');
    const std::vector<std::string> lines = lines_of(all);
    ASSERT_GT(lines.size(), 10U);
    // The kernel moves a terminal's bytes on when it likes, which makes room in between: then the
    // count is said in several parts.
    int lost = 0;
    int whole = 0;
    for (const std::string& one : lines) {
      int count = 0;
      if (one == line) {
        ++whole;
      } else {
        ASSERT_EQ(std::sscanf(one.c_str(), "p %d line", &count), 1) << one;
        EXPECT_THAT(one, HasSubstr("lost here: standard error had no room for more"));
        lost += count;
      }
    }
    EXPECT_EQ(whole + lost, kLines);
    EXPECT_GT(lost, 0);
  }
}

TEST(LineWriterR8, AProcessThatMayOpenNoFileDoesNotBlockEither) {
  const Pipe pipe;
  LineWriter writer(pipe.writer, "p ");
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit none{3, files.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string line(99, 'x');
  for (int i = 0; i < 100; ++i) writer.write(line + "\n");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_THAT(lines_of(pipe.read()), testing::Each(line));
  writer.catch_up();
  EXPECT_THAT(pipe.read(), HasSubstr("lines were lost here"));
}

TEST(LineWriterR8, WithoutAReaderLinesAreLostAndTheProcessLivesOn) {
  Pipe pipe;
  ::close(pipe.reader);
  pipe.reader = -1;
  LineWriter writer(pipe.writer, "p ");
  writer.write("nobody\n");  // write(2) would end the process by SIGPIPE
}

}  // namespace
}  // namespace ronde::base
