// SPDX-License-Identifier: Apache-2.0
// Who may call a plug-in's engine, and until when.
#include "collectives/device/plugin_gate.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "test/support/eventually.h"

namespace ronde::collectives {
namespace {

// The plug-in counts in what its caller gives it for an engine.
struct Counted {
  std::atomic<int> unmarked{0};
};

ronde_plugin_engine* engine_of(Counted& counted) {
  return reinterpret_cast<ronde_plugin_engine*>(&counted);
}

ronde_plugin counting_table() {
  ronde_plugin table{};
  table.unmark = [](ronde_plugin_engine* engine, ronde_plugin_mark* /*mark*/) {
    ++reinterpret_cast<Counted*>(engine)->unmarked;
  };
  return table;
}

class PluginGateTest : public ::testing::Test {
 protected:
  PluginGateTest() { gate_->open(engine_of(counted_)); }
  bool enter() {
    return gate_->enter([](const ronde_plugin& /*table*/, ronde_plugin_engine* /*engine*/) {});
  }

  Counted counted_;
  const ronde_plugin table_ = counting_table();
  const std::shared_ptr<PluginGate> gate_ = std::make_shared<PluginGate>(table_);
};

TEST_F(PluginGateTest, LeadsToTheEngineUntilItIsShut) {
  ronde_plugin_engine* seen = nullptr;
  EXPECT_TRUE(gate_->enter([&](const ronde_plugin& table, ronde_plugin_engine* engine) {
    EXPECT_EQ(&table, &table_);
    seen = engine;
  }));
  EXPECT_EQ(seen, engine_of(counted_));
  gate_->shut();
  EXPECT_FALSE(enter());
  gate_->shut();
}

TEST_F(PluginGateTest, LeadsNowhereBeforeItIsOpen) {
  PluginGate gate(table_);
  EXPECT_FALSE(gate.enter([](const ronde_plugin&, ronde_plugin_engine*) { ADD_FAILURE(); }));
}

// Whoever is inside sees an engine that is open, however many come.
TEST_F(PluginGateTest, IsShutWhenNobodyIsInside) {
  constexpr int kThreads = 3;
  std::atomic<bool> open{true};
  std::atomic<int> entered{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      while (gate_->enter([&](const ronde_plugin& /*table*/, ronde_plugin_engine* /*engine*/) {
        ++entered;
        std::this_thread::yield();
        EXPECT_TRUE(open.load());
      })) {
      }
    });
  }
  EXPECT_TRUE(testing::eventually([&] { return entered.load() >= 1000; }));
  gate_->shut();
  open.store(false);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(PluginGateTest, AMarkIsGivenBackOnce) {
  ReadyMarkPtr mark = std::make_shared<const ReadyMark>(gate_, nullptr);
  const ReadyMarkPtr other = std::make_shared<const ReadyMark>(gate_, nullptr);
  ReadyMarkPtr copy = mark;
  mark.reset();
  EXPECT_EQ(counted_.unmarked, 0);
  copy.reset();
  EXPECT_EQ(counted_.unmarked, 1);
}

TEST_F(PluginGateTest, AMarkThatOutlivesTheEngineIsNot) {
  ReadyMarkPtr mark = std::make_shared<const ReadyMark>(gate_, nullptr);
  gate_->shut();
  mark.reset();
  EXPECT_EQ(counted_.unmarked, 0);
}

// Nor does a child wait for a lock that a thread of the parent held when it was made.
TEST_F(PluginGateTest, AForkedChildIsOutside) {
  ReadyMarkPtr mark = std::make_shared<const ReadyMark>(gate_, nullptr);
  int status = -1;
  EXPECT_TRUE(gate_->enter([&](const ronde_plugin& /*table*/, ronde_plugin_engine* /*engine*/) {
    const pid_t child = ::fork();
    if (child == 0) {
      const bool outside = !enter();
      gate_->shut();
      mark.reset();
      ::_exit(outside && counted_.unmarked == 0 ? 0 : 1);
    }
    ASSERT_EQ(::waitpid(child, &status, 0), child);
  }));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  mark.reset();
  EXPECT_EQ(counted_.unmarked, 1);
}

}  // namespace
}  // namespace ronde::collectives
