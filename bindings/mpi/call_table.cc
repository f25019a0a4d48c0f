// SPDX-License-Identifier: Apache-2.0
// The memory is a file in /dev/shm, which has a name for no longer than the ranks need to find it.
#include "bindings/mpi/call_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <limits>

namespace ronde::mpi_allreduce {

namespace {

using Name = std::array<char, 64>;

// In bits of a call: how many, of which type, with which operation.
constexpr int kTypeShift = 32;
constexpr int kOpShift = 40;
constexpr std::uint64_t kUnknown = 0xff;

// The memory of this name; MAP_FAILED where there is none.
void* map(const Name& name, std::size_t bytes, bool make) {
  const int file = shm_open(name.data(), make ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
  if (file < 0) return MAP_FAILED;
  // Memory that is only promised would end the process at its first use.
  const bool there = !make || posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0;
  void* memory = MAP_FAILED;
  if (there) memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return memory;
}

}  // namespace

std::uint64_t call_of(const Reduction& reduction, int count) {
  return static_cast<std::uint32_t>(count) |
         static_cast<std::uint64_t>(reduction.dtype) << kTypeShift |
         static_cast<std::uint64_t>(reduction.op) << kOpShift;
}

std::uint64_t call_of_mpi(int count, int element_bytes) {
  return static_cast<std::uint32_t>(count) | kUnknown << kTypeShift |
         static_cast<std::uint64_t>(element_bytes) << kOpShift;
}

std::unique_ptr<CallTable> CallTable::open(MPI_Comm communicator, int rank, int size) {
  const std::size_t bytes = bytes_for(size);
  Name name{};
  void* memory = MAP_FAILED;
  if (rank == 0) {
    std::uint64_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) number = 0;
    std::snprintf(name.data(), name.size(), "/ronde_mpi_allreduce.%d.%016llx",
                  static_cast<int>(getpid()), static_cast<unsigned long long>(number));
    memory = map(name, bytes, true);
  }
  PMPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, communicator);
  if (rank != 0) memory = map(name, bytes, false);
  PMPI_Barrier(communicator);
  if (rank == 0) shm_unlink(name.data());
  if (memory == MAP_FAILED) return nullptr;
  return std::make_unique<CallTable>(static_cast<Entry*>(memory), rank, size);
}

CallTable::~CallTable() { munmap(entries_, bytes_for(size_)); }

void CallTable::enter(int communicator, std::uint64_t number, std::uint64_t call) {
  Entry& mine = at(rank_, communicator);
  mine.calls.at(number % 2).store(call, std::memory_order_relaxed);
  mine.number.store(number, std::memory_order_release);
}

void CallTable::give_up() { at(rank_, kCommunicators).number.store(1, std::memory_order_release); }

Meeting CallTable::look(int communicator, std::uint64_t number) const {
  const auto call_of_rank = [&](int rank) {
    return at(rank, communicator).calls.at(number % 2).load(std::memory_order_relaxed);
  };
  const std::uint64_t mine = call_of_rank(rank_);
  bool waits = false;
  bool differs = false;
  for (int rank = 0; rank < size_; ++rank) {
    const std::uint64_t there = at(rank, communicator).number.load(std::memory_order_acquire);
    if (there > number) return Meeting::kEqual;
    waits = waits || there < number;
    differs = differs || call_of_rank(rank) != mine;
  }
  if (!waits && !differs) return Meeting::kEqual;
  for (int rank = 0; rank < size_; ++rank) {
    if (at(rank, kCommunicators).number.load(std::memory_order_acquire) != 0) {
      return Meeting::kEqual;
    }
  }
  return waits ? Meeting::kWaits : Meeting::kDiffers;
}

}  // namespace ronde::mpi_allreduce
