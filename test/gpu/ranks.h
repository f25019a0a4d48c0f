// SPDX-License-Identifier: Apache-2.0
// Ranks in processes of their own, for programs that have no test framework: what is wrong is
// printed and counted.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "test/device/device.h"
#include "test/gpu/cases.h"

namespace ronde::gpu_test {

// Thread safety: one thread.
class Findings {
 public:
  Findings(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  [[nodiscard]] int wrong() const { return wrong_; }
  bool expect(bool right, const std::string& what) {
    if (right) return true;
    ++wrong_;
    std::printf("  rank %d of %d: %s: WRONG\n", rank_, ranks_, what.c_str());
    return false;
  }

 private:
  const int rank_;
  const int ranks_;
  int wrong_ = 0;
};

// One rank with an engine of the plug-in. Thread safety: that of the plug-in; findings by one
// thread.
class PluginRank : public Findings, public device_test::DeviceRank {
 public:
  PluginRank(int rank, int ranks, Meeting& meeting)
      : Findings(rank, ranks),
        DeviceRank(
            rank, ranks,
            [&meeting, ranks](std::int32_t of, const void* mine, std::size_t bytes, void* all) {
              return meeting.allgather(of, ranks, mine, bytes, all);
            },
            [this](const std::string& what) { expect(false, what); }),
        meeting_(meeting) {
    expect(opened() == RONDE_PLUGIN_OK, "open: " + text());
  }
  ~PluginRank() { std::printf("%s", log().c_str()); }

  [[nodiscard]] bool has_collectives() {
    return expect(opened() == RONDE_PLUGIN_OK && info().has_collectives == 1, "collectives");
  }
  [[nodiscard]] Meeting& meeting() const { return meeting_; }
  // Runs one batch to its end.
  bool run(device_test::Batch& batch) { return finish(execute(batch.get())) == RONDE_PLUGIN_OK; }

 private:
  Meeting& meeting_;
};

// A check of the plug-in, whose engine closes after it.
inline Case plugin_case(const std::string& name, int ranks, Sharing sharing,
                        void (*check)(PluginRank&)) {
  return {name, ranks, sharing, [check](int rank, int size, Meeting& meeting) {
            PluginRank me(rank, size, meeting);
            check(me);
            me.close();
            return me.wrong() == 0 ? 0 : 1;
          }};
}

// The plug-in's name goes by the environment, as with every test of a device.
inline void set_plugin(const char* library) {
  ::setenv("RONDE_DEVICE_PLUGIN", library, 1);
  ::setenv("RONDE_PLUGIN_PATH", library, 1);
}

// A program of such cases: <program> <libronde_cuda.so> [case]... Returns its exit code.
inline int run_program(std::span<char* const> arguments, std::span<const Case> cases,
                       bool (*has_device)()) {
  if (arguments.size() < 2) {
    std::printf("usage: %s <libronde_cuda.so> [case]...\n", arguments[0]);
    return 2;
  }
  set_plugin(arguments[1]);
  return run_cases(cases, arguments.subspan(2), has_device);
}

}  // namespace ronde::gpu_test
