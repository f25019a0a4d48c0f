// SPDX-License-Identifier: Apache-2.0
// Loading UCX leaves the process as it was. Each case is a process of its own, since UCX is loaded
// once.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "collectives/transport/ucx/library.h"
#include "test/unit/collectives/transport/ucx/ends.h"

namespace ronde::collectives::ucx {
namespace {

constexpr const char* kChild = "UCX_TEST_LIBRARY_CHILD";

// Runs one case of UcxLibraryChild, with variables set ("UCX_A=1 UCX_B=2"), and returns what it
// prints; it must succeed.
std::string run_child(const std::string& name, const std::string& variables) {
  const std::string output =
      testing::TempDir() + "ucx_library_" + std::to_string(::getpid()) + ".txt";
  const std::string command = std::string("env -u GTEST_FILTER ") + kChild + "=1 " + variables +
                              " " + std::filesystem::read_symlink("/proc/self/exe").string() +
                              " --gtest_filter=UcxLibraryChild." + name + " > " + output + " 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::ifstream file(output);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::filesystem::remove(output);
  return text;
}

bool is_child() { return std::getenv(kChild) != nullptr; }

void own_handler(int /*signal*/) {}

struct sigaction action_of(int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action;
}

// The signals that a thread of this process blocks, as the kernel shows them.
std::uint64_t blocked_by(const std::filesystem::path& task) {
  std::ifstream status(task / "status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigBlk:")) return std::stoull(line.substr(7), nullptr, 16);
  }
  ADD_FAILURE() << "no SigBlk in " << task;
  return 0;
}

TEST(UcxLibraryChild, LeavesHandlersAndStackAsTheyWere) {
  if (!is_child()) return;
  std::array<char, 65536> memory{};
  const stack_t mine{.ss_sp = memory.data(), .ss_flags = 0, .ss_size = memory.size()};
  ASSERT_EQ(::sigaltstack(&mine, nullptr), 0);
  ::signal(SIGHUP, own_handler);
  struct sigaction fault {};
  fault.sa_handler = own_handler;
  fault.sa_flags = SA_ONSTACK | SA_RESTART;
  ::sigaction(SIGSEGV, &fault, nullptr);
  std::array<struct sigaction, NSIG> before{};
  for (int signal = 1; signal < NSIG; ++signal) {
    before.at(static_cast<std::size_t>(signal)) = action_of(signal);
  }

  ASSERT_TRUE(library().ok()) << library().status().to_string();

  EXPECT_EQ(action_of(SIGHUP).sa_handler, own_handler);
  EXPECT_EQ(action_of(SIGSEGV).sa_handler, own_handler);
  EXPECT_EQ(action_of(SIGSEGV).sa_flags & (SA_ONSTACK | SA_RESTART), SA_ONSTACK | SA_RESTART);
  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal == SIGHUP || signal == SIGSEGV) continue;
    EXPECT_EQ(action_of(signal).sa_handler, before.at(static_cast<std::size_t>(signal)).sa_handler)
        << "signal " << signal;
  }
  stack_t now{};
  ::sigaltstack(nullptr, &now);
  EXPECT_EQ(now.ss_sp, static_cast<void*>(memory.data()));
}

TEST(UcxLibraryChild, KeepsHandlersThatTheUserAskedFor) {
  if (!is_child()) return;
  ASSERT_TRUE(library().ok());
  EXPECT_NE(action_of(SIGSEGV).sa_sigaction, nullptr) << "UCX's own";
}

TEST(UcxLibraryChild, ThreadsOfUcxBlockAllSignals) {
  if (!is_child()) return;
  const auto ends = connected_ends(2);
  std::thread other([&] { EXPECT_TRUE(ends[1]->transport->send(0, 1, {}).ok()); });
  other.join();
  int threads = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(::getpid())) continue;
    ++threads;
    EXPECT_NE(blocked_by(task.path()) & (1U << (SIGTERM - 1)), 0U) << task.path();
  }
  EXPECT_GT(threads, 0) << "UCX has a thread of its own";
}

TEST(UcxLibraryChild, LosesAConnection) {
  if (!is_child()) return;
  auto ends = connected_ends(2);
  std::byte word{};
  const auto sent = ends[1]->transport->send(0, 1, {&word, 1});
  const auto received = ends[0]->transport->receive(1, 1, {&word, 1});
  for (int i = 0; i < 1000; ++i) {
    ends[0]->end->progress();
    ends[1]->end->progress();
  }
  ends[1].reset();
  for (int i = 0; i < 1000; ++i) ends[0]->end->progress();
}

TEST(UcxLibrary, LeavesHandlersAndStackAsTheyWere) {
  run_child("LeavesHandlersAndStackAsTheyWere", "");
}

TEST(UcxLibrary, KeepsHandlersThatTheUserAskedFor) {
  run_child("KeepsHandlersThatTheUserAskedFor", "UCX_HANDLE_ERRORS=bt");
}

TEST(UcxLibrary, ItsThreadsBlockAllSignals) { run_child("ThreadsOfUcxBlockAllSignals", ""); }

TEST(UcxLibrary, PrintsNothingUnlessItIsAsked) {
  EXPECT_EQ(run_child("LosesAConnection", "UCX_NO_SUCH_SETTING=1").find("UCX"), std::string::npos);
  EXPECT_NE(run_child("LosesAConnection", "UCX_LOG_LEVEL=info").find("UCX  INFO"),
            std::string::npos);
}

}  // namespace
}  // namespace ronde::collectives::ucx
