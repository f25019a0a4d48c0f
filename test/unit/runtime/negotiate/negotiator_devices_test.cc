// SPDX-License-Identifier: Apache-2.0
// The negotiator and tensors of devices: which of them fuse, and which tensors go into batches
// while devices are held back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "test/unit/runtime/negotiate/negotiator_fixture.h"

namespace ronde::runtime {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Signature on_device_number(std::int32_t device) {
  Signature signature = plain();
  signature.device = device;
  return signature;
}

// The first step is by name, the second by the plan.
TEST(NegotiatorDevices, RanksWithDevicesOfTheirOwnFuse) {
  Job job(3, 8);
  for (std::int32_t rank = 0; rank < job.ranks; ++rank) {
    job.request(rank, "a", on_device_number(rank));
    job.request(rank, "b", on_device_number(rank));
    // The number of the device differs between ranks, and whichever is kept must not matter.
    job.request(rank, "c", on_device_number(job.ranks - rank));
    job.request(rank, "host");
  }
  (void)job.decisions();
  EXPECT_THAT(job.batch(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(job.batch(), ElementsAre("host"));
  for (const std::string name : {"a", "host", "b", "c"}) {
    for (std::int32_t rank = 0; rank < job.ranks; ++rank) EXPECT_TRUE(job.arrive(rank, name));
  }
  EXPECT_THAT(job.batch(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(job.batch(), ElementsAre("host"));
}

TEST(NegotiatorDevices, WhileTheyAreHeldBackHostTensorsGo) {
  Job job(1, 8);
  Signature urgent = plain();
  urgent.priority = 1;
  Signature other = plain();
  other.dtype = base::DType::kF64;
  job.request(0, "device 1", on_device_number(0));
  job.request(0, "host 1");
  job.request(0, "device 2", on_device_number(0));
  job.request(0, "other", other);
  job.request(0, "host 2", urgent);
  (void)job.decisions();
  job.negotiator.hold_devices_back(true);
  EXPECT_THAT(job.batch(), ElementsAre("host 2", "host 1"));
  EXPECT_THAT(job.batch(), ElementsAre("other"));
  EXPECT_FALSE(job.negotiator.has_ready());
  EXPECT_THAT(job.batch(), IsEmpty());
  job.request(0, "late");
  (void)job.decisions();
  EXPECT_THAT(job.batch(), ElementsAre("late"));
  job.negotiator.hold_devices_back(false);
  EXPECT_TRUE(job.negotiator.has_ready());
  EXPECT_THAT(job.batch(), ElementsAre("device 1", "device 2"));
}

// A device tensor that is ready alone is held back as well, and so is a barrier of devices.
TEST(NegotiatorDevices, ABarrierOfDevicesIsHeldBackToo) {
  Job job(1, 8);
  Signature barrier;
  barrier.operation = Operation::kDeviceBarrier;
  barrier.device = 0;
  job.negotiator.hold_devices_back(true);
  job.request(0, "b", barrier);
  (void)job.decisions();
  EXPECT_FALSE(job.negotiator.has_ready());
  EXPECT_THAT(job.batch(), IsEmpty());
  job.negotiator.hold_devices_back(false);
  EXPECT_THAT(job.batch(), ElementsAre("b"));
}

}  // namespace
}  // namespace ronde::runtime
