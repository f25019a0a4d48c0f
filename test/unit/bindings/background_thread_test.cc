// SPDX-License-Identifier: Apache-2.0
// What a program notices of the background thread of its engine.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <ronde/ronde.hpp>

#include "test/support/eventually.h"

namespace {

// The signals that the thread of this name blocks, as a mask whose bit n-1 is signal n.
std::optional<std::uint64_t> blocked_by(const std::string& thread) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name != thread) continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("SigBlk:", 0) == 0) return std::stoull(line.substr(7), nullptr, 16);
    }
  }
  return std::nullopt;
}

bool has(std::uint64_t mask, int signal) { return (mask >> (signal - 1) & 1U) != 0; }

// A fault in the background thread must reach the program's crash handler.
TEST(BackgroundThread, BlocksNoSignalThatItRaisesItself) {
  const ronde::LocalJob job(1);
  const ronde::Engine engine(job, 0);
  // The thread gives itself its name.
  std::optional<std::uint64_t> blocked;
  ASSERT_TRUE(ronde::testing::eventually([&] {
    blocked = blocked_by("ronde-0");
    return blocked.has_value();
  })) << "no thread is named ronde-0";
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP}) {
    EXPECT_FALSE(has(*blocked, signal)) << "signal " << signal << " is blocked";
  }
  // The others are the business of the program's own threads.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGALRM}) {
    EXPECT_TRUE(has(*blocked, signal)) << "signal " << signal << " may land here";
  }
}

}  // namespace
