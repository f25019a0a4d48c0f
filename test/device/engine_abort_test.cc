// SPDX-License-Identifier: Apache-2.0
// What comes first when a job with devices fails: everybody hears of it, then the devices let go of
// the memory, and then the works end.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "test/device/device_engines.h"
#include "test/support/operations.h"

namespace ronde::device_test {
namespace {

using runtime::Engine;
using runtime::Operation;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::on_ranks;
using testing::open_engines;

class DeviceAbort : public ::testing::Test {
 protected:
  ~DeviceAbort() override { ::unsetenv("RONDE_TOY"); }
};

// Copies that nothing shortens are under way when the job fails. The toy sees when their memory is
// given back too early; the other end is unmapped when this test lets go of it.
TEST_F(DeviceAbort, MemoryIsGivenBackWhenTheCopiesAreOver) {
  ::setenv("RONDE_TOY", "staged, slow copies", 1);
  testing::EngineOptions options = options_of_device();
  options.environment.insert(options.environment.end(), {"RONDE_STALL_WARNING_SECONDS=0.05",
                                                         "RONDE_STALL_FAILURE_SECONDS=0.1"});
  constexpr std::int64_t kElements = 1000;
  for (const Operation operation : {Operation::kAllreduce, Operation::kAllgather}) {
    ::testing::internal::CaptureStderr();
    const auto engines = open_engines(2, options);
    on_ranks(2, [&](int rank) {
      Engine& engine = *engines[static_cast<std::size_t>(rank)];
      const DeviceMemory memory(std::vector<float>(kElements, 1.0F));
      const auto work =
          engine.submit(device_vector("t", operation, kElements, memory.get(), memory.get()));
      ASSERT_TRUE(work.ok());
      EXPECT_EQ(engine.wait(**work).code(), base::Code::kDeadline);
      EXPECT_FALSE(engine.close().ok());
    });
    const std::string lines = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(lines, HasSubstr("'t' has waited"));
    EXPECT_THAT(lines, Not(HasSubstr("given back under a copy")));
    EXPECT_THAT(lines, Not(HasSubstr("did not end")));
  }
}

// There are two hosts, so the failure reaches the other one over the network.
TEST_F(DeviceAbort, TheOthersHearOfAFailureBeforeTheDeviceIsAborted) {
  ::setenv("RONDE_TOY", "broken, slow abort", 1);
  testing::EngineOptions options = options_of_device();
  const std::vector<std::int32_t> leaders{0, 1};
  options.shape = base::JobShape::of_leaders(leaders).value();
  ::testing::internal::CaptureStderr();
  const auto engines = open_engines(2, options);
  on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    const DeviceMemory memory(std::vector<float>(10, 1.0F));
    const auto work = engine.submit(device_allreduce("t", memory, 10));
    ASSERT_TRUE(work.ok());
    EXPECT_THAT(engine.wait(**work).message(), HasSubstr("a wheel has come off"));
    EXPECT_FALSE(engine.close().ok());
  });
  const std::string lines = ::testing::internal::GetCapturedStderr();
  const auto aborted = lines.find("the toy has been aborted");
  ASSERT_NE(aborted, std::string::npos) << lines;
  for (const std::string rank : {"0", "1"}) {
    const auto verdict = lines.find("[rank " + rank + "] error: rank 0 failed in batch 1");
    EXPECT_LT(verdict, aborted) << "rank " << rank << " heard of it late:\n" << lines;
  }
}

}  // namespace
}  // namespace ronde::device_test
