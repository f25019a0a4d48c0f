// SPDX-License-Identifier: Apache-2.0
#include "collectives/transport/workspace.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>

#include "collectives/transport/local.h"

// The sanitizers end the program on an impossible allocation unless this option allows it. They are
// shared libraries, which find only functions that are visible.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}

namespace ronde::collectives {
namespace {

using base::Bytes;

class WorkspaceTest : public testing::Test {
 protected:
  Workspace::Block acquire(std::int64_t bytes) {
    auto block = workspace_.acquire(transport_, Bytes(bytes));
    EXPECT_TRUE(block.ok());
    return std::move(block).value();
  }

  Workspace workspace_;
  Transport transport_ = local_transport(std::make_shared<LocalHub>(2), 0);
};

TEST_F(WorkspaceTest, BlocksAreAlignedAndLargeEnough) {
  for (const std::int64_t bytes : {0, 1, 64, 5000, 1 << 20}) {
    const Workspace::Block block = acquire(bytes);
    EXPECT_GE(std::ssize(block.bytes()), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.bytes().data()) % 64, 0U);
  }
}

TEST_F(WorkspaceTest, AReleasedBlockIsUsedAgain) {
  Workspace::Block block = acquire(10000);
  const std::byte* memory = block.bytes().data();
  workspace_.release(std::move(block));
  EXPECT_EQ(acquire(9000).bytes().data(), memory);
  EXPECT_EQ(workspace_.idle_bytes().value(), 0);
}

TEST_F(WorkspaceTest, TheSmallestBlockThatFitsIsTaken) {
  Workspace::Block small = acquire(5000);
  Workspace::Block large = acquire(100'000);
  const std::byte* memory = small.bytes().data();
  workspace_.release(std::move(large));
  workspace_.release(std::move(small));
  EXPECT_EQ(acquire(4000).bytes().data(), memory);
}

TEST_F(WorkspaceTest, AParkedBlockWaitsForTheTransport) {
  Workspace::Block block = acquire(10000);
  std::byte* memory = block.bytes().data();
  const auto request = transport_.receive(1, 0, block.bytes().first(8));
  ASSERT_TRUE(request.ok());
  workspace_.park(std::move(block));

  Workspace::Block other = acquire(10000);
  EXPECT_NE(other.bytes().data(), memory) << "a request still points there";
  EXPECT_EQ(workspace_.idle_bytes().value(), 16384) << "parked, not freed";
  workspace_.release(std::move(other));
}

TEST_F(WorkspaceTest, AParkedBlockComesBackWhenNothingIsOutstanding) {
  Workspace::Block block = acquire(10000);
  const std::byte* memory = block.bytes().data();
  workspace_.park(std::move(block));
  EXPECT_EQ(acquire(10000).bytes().data(), memory);
}

TEST_F(WorkspaceTest, ALeaseParksUnlessItIsToldThatAllIsQuiet) {
  const auto request = transport_.receive(1, 0, {});
  ASSERT_TRUE(request.ok());
  const std::byte* quiet_memory = nullptr;
  {
    WorkspaceLease broken(workspace_);
    ASSERT_TRUE(broken.acquire(transport_, Bytes(100)).ok());
    WorkspaceLease quiet(workspace_);
    ASSERT_TRUE(quiet.acquire(transport_, Bytes(100)).ok());
    quiet_memory = quiet.memory();
    quiet.mark_unreferenced();
  }
  EXPECT_EQ(acquire(100).bytes().data(), quiet_memory);
  EXPECT_EQ(workspace_.idle_bytes().value(), 4096) << "the broken one's";
}

TEST_F(WorkspaceTest, AnImpossibleSizeIsAnError) {
  const auto block = workspace_.acquire(transport_, Bytes(std::int64_t{1} << 60));
  ASSERT_FALSE(block.ok());
  EXPECT_EQ(block.status().code(), base::Code::kOutOfMemory);
}

}  // namespace
}  // namespace ronde::collectives
