// SPDX-License-Identifier: Apache-2.0
// Both backings: size, zeroes, alignment, sharing between processes, and what is refused.
#include "collectives/board/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

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

auto one_memfd(Bytes bytes) { return SharedMemory::create_memfds(std::array{bytes}); }

std::vector<FileDescriptor> duplicates_of(const SharedMemory& memory) {
  std::vector<FileDescriptor> fds;
  for (const int fd : memory.fds()) fds.emplace_back(::dup(fd));
  return fds;
}

TEST(SharedMemory, IsZeroedAndAlignedOnBothBackings) {
  for (const std::int64_t bytes : {1, 4095, 4097, 1 << 20}) {
    auto memfd = one_memfd(Bytes(bytes));
    ASSERT_TRUE(memfd.ok()) << memfd.status().to_string();
    expect_fresh(**memfd, static_cast<std::size_t>(bytes));
    EXPECT_GE((*memfd)->fds().front(), 0);
    auto heap = SharedMemory::create_heap(Bytes(bytes));
    ASSERT_TRUE(heap.ok()) << heap.status().to_string();
    expect_fresh(**heap, static_cast<std::size_t>(bytes));
    EXPECT_TRUE((*heap)->fds().empty());
  }
}

TEST(SharedMemory, RefusesNothingAndTooMuch) {
  EXPECT_EQ(one_memfd(Bytes(0)).status().code(), base::Code::kInvalidArgument);
  EXPECT_EQ(SharedMemory::create_heap(Bytes(0)).status().code(), base::Code::kInvalidArgument);
  const auto huge = one_memfd(Bytes(std::int64_t{1} << 60));
  ASSERT_FALSE(huge.ok());
  EXPECT_NE(huge.status().message().find("1152921504606846976 bytes"), std::string::npos);
}

// Beyond the limit, ftruncate() would end the process with SIGXFSZ.
TEST(SharedMemory, ALimitOnFileSizesIsAnError) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{8192, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto fits = one_memfd(Bytes(8192));
  const auto refused = one_memfd(Bytes(8193));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(fits.ok()) << fits.status().to_string();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("ulimit -f"), std::string::npos);
}

TEST(SharedMemory, IsSeenByAForkedProcessAndThroughTheDescriptor) {
  auto memory = one_memfd(Bytes(8192));
  ASSERT_TRUE(memory.ok());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto view = SharedMemory::map_fds(duplicates_of(**memory));
    if (!view.ok()) ::_exit(1);
    (*view)->bytes()[8191] = std::byte{42};
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ((*memory)->bytes()[8191], std::byte{42});
}

// Each part can be handed on by itself; it lies where the one before it ends.
TEST(SharedMemory, OfPartsIsOneRangeInWhichEachIsAMemfd) {
  auto memory = SharedMemory::create_memfds(std::array{Bytes(8192), Bytes(4096), Bytes(100)});
  ASSERT_TRUE(memory.ok()) << memory.status().to_string();
  EXPECT_EQ((*memory)->bytes().size(), 8192U + 4096U + 100U);
  (*memory)->bytes()[8191] = std::byte{1};
  (*memory)->bytes()[8192] = std::byte{2};
  (*memory)->bytes()[8192 + 4096 + 99] = std::byte{3};
  auto view = SharedMemory::map_fds(duplicates_of(**memory));
  ASSERT_TRUE(view.ok()) << view.status().to_string();
  EXPECT_TRUE(std::ranges::equal((*view)->bytes(), (*memory)->bytes()));
  (*memory)->keep_fds_of(2);
  EXPECT_EQ((*memory)->fds()[1], -1);
  std::vector<FileDescriptor> last;
  last.emplace_back(::dup((*memory)->fds()[2]));
  auto alone = SharedMemory::map_fds(std::move(last));
  ASSERT_TRUE(alone.ok()) << alone.status().to_string();
  EXPECT_EQ((*alone)->bytes()[99], std::byte{3});
  (*alone)->bytes()[0] = std::byte{4};
  EXPECT_EQ((*memory)->bytes()[8192 + 4096], std::byte{4});
}

TEST(SharedMemory, SizeIsSealed) {
  auto memory = one_memfd(Bytes(8192));
  ASSERT_TRUE(memory.ok());
  EXPECT_NE(::ftruncate((*memory)->fds().front(), 4096), 0);
  EXPECT_NE(::ftruncate((*memory)->fds().front(), 16384), 0);
}

TEST(SharedMemory, MapRefusesAnUnsealedFile) {
  FileDescriptor unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_TRUE(unsealed.valid());
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  std::vector<FileDescriptor> fds;
  fds.push_back(std::move(unsealed));
  const auto refused = SharedMemory::map_fds(std::move(fds));
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
    auto memory = one_memfd(Bytes(1 << 20));
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
