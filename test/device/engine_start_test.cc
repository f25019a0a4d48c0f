// SPDX-License-Identifier: Apache-2.0
// Which plug-ins an engine opens with, and that it opens without as well.
#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

#include "test/device/device_engines.h"
#include "test/support/operations.h"

namespace ronde::device_test {
namespace {

using runtime::Engine;
using ::testing::HasSubstr;
using testing::submit_and_wait;

class DeviceStart : public ::testing::Test {
 protected:
  ~DeviceStart() override { ::unsetenv("RONDE_TOY"); }

  // What a job of three ranks prints; tensors in host memory are served in any case. Those of a
  // device are, or are refused with what `refused` says.
  static std::string lines_of(const testing::EngineOptions& options, const std::string& refused) {
    ::testing::internal::CaptureStderr();
    testing::run_job(3, options, [&](int /*rank*/, Engine& engine) {
      std::vector<float> host(100, 1.0F);
      EXPECT_TRUE(submit_and_wait(engine, testing::allreduce_of("host", host)).ok());
      EXPECT_EQ(host, std::vector<float>(100, 3.0F));
      const DeviceMemory memory(std::vector<float>(100, 1.0F));
      const auto status = submit_and_wait(engine, device_allreduce("device", memory, 100));
      if (refused.empty()) {
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(memory.values<float>(), std::vector<float>(100, 3.0F));
      } else {
        EXPECT_EQ(status.code(), base::Code::kUnsupported);
        EXPECT_THAT(status.message(), HasSubstr(refused));
      }
    });
    return ::testing::internal::GetCapturedStderr();
  }
  static testing::EngineOptions with(const std::string& path) {
    testing::EngineOptions options;
    options.environment = {"RONDE_PLUGIN_PATH=" + path};
    return options;
  }
  static testing::EngineOptions chatty() {
    testing::EngineOptions options = options_of_device();
    options.environment.push_back("RONDE_LOG_LEVEL=info");
    return options;
  }
  static std::string bad(const std::string& kind) {
    return (std::filesystem::path(RONDE_TEST_PLUGINS) / ("libbad_" + kind + ".so")).string();
  }
  static int count(const std::string& lines, const std::string& part) {
    int found = 0;
    for (auto at = lines.find(part); at != std::string::npos; at = lines.find(part, at + 1))
      ++found;
    return found;
  }
};

TEST_F(DeviceStart, SaysWhichPluginAndOfWhichVersions) {
  const std::string lines = lines_of(chatty(), "");
  EXPECT_EQ(count(lines, "plug-in"), 1) << lines;
  EXPECT_THAT(lines, HasSubstr("the plug-in 'toy' serves tensors of devices: toy 1.0\n"));
}

TEST_F(DeviceStart, IsSilentWithoutOne) {
  EXPECT_EQ(lines_of({}, "there is no device plug-in beside libronde.so"), "");
}

TEST_F(DeviceStart, IsOffWhereItIsSwitchedOff) {
  EXPECT_EQ(lines_of(with("off"), "this engine serves no device: RONDE_PLUGIN_PATH=off"), "");
}

TEST_F(DeviceStart, OneRankThatCannotReachTheOthersIsEnoughForHostMemory) {
  ::setenv("RONDE_TOY", "staged on rank 1", 1);
  EXPECT_THAT(lines_of(chatty(), ""),
              HasSubstr("toy 1.0; they pass through host memory, since the devices of rank 1 "
                        "cannot be reached by the others"));
}

TEST_F(DeviceStart, APluginThatStaysOutSaysWhy) {
  ::setenv("RONDE_TOY", "absent", 1);
  const std::string lines = lines_of(options_of_device(), "no toy is plugged in");
  EXPECT_EQ(count(lines, "plug-in"), 1) << lines;
  EXPECT_THAT(lines,
              HasSubstr("the plug-in 'toy' is not used: no toy is plugged in; tensors in host "
                        "memory are not affected"));
}

// Rank 1 gives up while the others talk to each other.
TEST_F(DeviceStart, ItStaysOutEverywhereIfItDoesAnywhere) {
  ::setenv("RONDE_TOY", "absent on rank 1", 1);
  const std::string lines = lines_of(options_of_device(), "no toy is plugged in on rank 1");
  EXPECT_EQ(count(lines, "are not affected"), 1) << lines;
}

TEST_F(DeviceStart, RefusesWhatIsNoPluginAndGoesOn) {
  EXPECT_THAT(lines_of(with(bad("entry")), "it has no ronde_plugin_entry"),
              HasSubstr("it has no ronde_plugin_entry; tensors in host memory are not affected"));
  EXPECT_THAT(lines_of(with(bad("version")), "is of version 7"),
              HasSubstr("'future' is of version 7 of the interface"));
  EXPECT_THAT(lines_of(with("/nowhere/lib.so"), "cannot be loaded"),
              HasSubstr("/nowhere/lib.so cannot be loaded"));
}

// What a job of two ranks prints, which go on without a device.
std::string lines_of_different(const std::vector<std::string>& first,
                               const std::vector<std::string>& second) {
  const auto job = runtime::LocalJob::create(2);
  EXPECT_TRUE(job.ok());
  ::testing::internal::CaptureStderr();
  testing::on_ranks(2, [&](int rank) {
    const auto open = [&](const base::Config& config, const base::Clock& clock) {
      return (*job)->join(rank, config, clock);
    };
    const auto engine =
        Engine::open(open, rank == 0 ? first : second, std::make_shared<base::SteadyClock>());
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    std::vector<float> host(10, 1.0F);
    EXPECT_TRUE(submit_and_wait(**engine, testing::allreduce_of("host", host)).ok());
    EXPECT_TRUE((*engine)->close().ok());
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST_F(DeviceStart, RanksThatFindDifferentPluginsUseNone) {
  const auto toy = options_of_device().environment;
  EXPECT_THAT(lines_of_different(toy, {}),
              HasSubstr("not all ranks have a device plug-in: no device plug-in on rank 1, the "
                        "plug-in 'toy' on rank 0; tensors in host memory are not affected"));
  EXPECT_THAT(lines_of_different(toy, {"RONDE_PLUGIN_PATH=off"}),
              HasSubstr("not all ranks have a device plug-in: RONDE_PLUGIN_PATH=off on rank 1, the "
                        "plug-in 'toy' on rank 0; tensors in host memory are not affected"));
  EXPECT_EQ(lines_of_different({}, {"RONDE_PLUGIN_PATH=off"}), "");
}

}  // namespace
}  // namespace ronde::device_test
