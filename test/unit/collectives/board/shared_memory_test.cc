// SPDX-License-Identifier: Apache-2.0
// Both backings: size, zeroes, alignment, sharing between processes, and what is refused.
#include "collectives/board/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>

namespace ronde::collectives {
namespace {

using base::Bytes;
using base::FileDescriptor;

void expect_fresh(const SharedMemory& memory, std::size_t bytes) {
  ASSERT_EQ(memory.bytes().size(), bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.bytes().data()) % 4096, 0U);
  EXPECT_TRUE(std::all_of(memory.bytes().begin(), memory.bytes().end(),
                          [](std::byte b) { return b == std::byte{0}; }));
  memory.bytes().back() = std::byte{1};
}

TEST(SharedMemory, IsZeroedAndAlignedOnBothBackings) {
  for (const std::int64_t bytes : {1, 4095, 4097, 1 << 20}) {
    auto memfd = SharedMemory::create_memfd(Bytes(bytes));
    ASSERT_TRUE(memfd.ok()) << memfd.status().to_string();
    expect_fresh(**memfd, static_cast<std::size_t>(bytes));
    EXPECT_GE((*memfd)->fd(), 0);
    auto heap = SharedMemory::create_heap(Bytes(bytes));
    ASSERT_TRUE(heap.ok()) << heap.status().to_string();
    expect_fresh(**heap, static_cast<std::size_t>(bytes));
    EXPECT_EQ((*heap)->fd(), -1);
  }
}

TEST(SharedMemory, RefusesNothingAndTooMuch) {
  EXPECT_EQ(SharedMemory::create_memfd(Bytes(0)).status().code(), base::Code::kInvalidArgument);
  EXPECT_EQ(SharedMemory::create_heap(Bytes(0)).status().code(), base::Code::kInvalidArgument);
  const auto huge = SharedMemory::create_memfd(Bytes(std::int64_t{1} << 60));
  ASSERT_FALSE(huge.ok());
  EXPECT_NE(huge.status().message().find("1152921504606846976 bytes"), std::string::npos);
}

// Beyond the limit, ftruncate() would end the process with SIGXFSZ.
TEST(SharedMemory, ALimitOnFileSizesIsAnError) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{8192, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto fits = SharedMemory::create_memfd(Bytes(8192));
  const auto refused = SharedMemory::create_memfd(Bytes(8193));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(fits.ok()) << fits.status().to_string();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("ulimit -f"), std::string::npos);
}

TEST(SharedMemory, IsSeenByAForkedProcessAndThroughTheDescriptor) {
  auto memory = SharedMemory::create_memfd(Bytes(8192));
  ASSERT_TRUE(memory.ok());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto view = SharedMemory::map_fd(FileDescriptor(::dup((*memory)->fd())));
    if (!view.ok()) ::_exit(1);
    (*view)->bytes()[8191] = std::byte{42};
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ((*memory)->bytes()[8191], std::byte{42});
}

TEST(SharedMemory, SizeIsSealed) {
  auto memory = SharedMemory::create_memfd(Bytes(8192));
  ASSERT_TRUE(memory.ok());
  EXPECT_NE(::ftruncate((*memory)->fd(), 4096), 0);
  EXPECT_NE(::ftruncate((*memory)->fd(), 16384), 0);
}

TEST(SharedMemory, MapRefusesAnUnsealedFile) {
  FileDescriptor unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_TRUE(unsealed.valid());
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  const auto refused = SharedMemory::map_fd(std::move(unsealed));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("not sealed"), std::string::npos);
}

// An open descriptor is the only name that the memory has.
TEST(SharedMemory, LeavesNoFileAndNoDescriptorBehind) {
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = descriptors();
  {
    auto memory = SharedMemory::create_memfd(Bytes(1 << 20));
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(descriptors(), before + 1);
    std::error_code ignored;
    for (const auto& file : std::filesystem::directory_iterator("/dev/shm", ignored)) {
      EXPECT_EQ(file.path().string().find("ronde"), std::string::npos);
    }
  }
  EXPECT_EQ(descriptors(), before);
}

}  // namespace
}  // namespace ronde::collectives
