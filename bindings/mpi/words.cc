// SPDX-License-Identifier: Apache-2.0
// The memory is a file in /dev/shm, which has a name for no longer than the ranks need to find it.
#include "bindings/mpi/words.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>

namespace ronde::mpi_allreduce {

namespace {

using Name = std::array<char, 64>;

// In bits of a call: how many, of which type, with which operation.
constexpr int kTypeShift = 32;
constexpr int kOpShift = 40;
constexpr std::uint64_t kUnknown = 0xff;

std::string text_of(std::uint64_t call) {
  const auto count = static_cast<std::uint32_t>(call);
  const std::uint64_t type = (call >> kTypeShift) & kUnknown;
  if (type == kUnknown) return std::to_string(count) + " of a type or with an operation of MPI's";
  const Reduction reduction{static_cast<ronde_dtype>(type),
                            static_cast<ronde_op>((call >> kOpShift) & kUnknown), 0};
  return name_of(reduction, static_cast<int>(count));
}

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

std::uint64_t call_of(const Reduction* reduction, int count) {
  const auto counted = static_cast<std::uint64_t>(static_cast<std::uint32_t>(count));
  if (reduction == nullptr) return counted | kUnknown << kTypeShift;
  return counted | static_cast<std::uint64_t>(reduction->dtype) << kTypeShift |
         static_cast<std::uint64_t>(reduction->op) << kOpShift;
}

std::unique_ptr<Words> Words::open(MPI_Comm communicator, int rank, int size) {
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
  return std::unique_ptr<Words>(new Words(static_cast<Word*>(memory), rank, size));
}

Words::~Words() { munmap(words_, bytes_for(size_)); }

void Words::begin(int communicator, std::uint64_t number, std::uint64_t call) {
  if (communicator >= kCommunicators) return;
  Word& mine = at(rank_, communicator);
  mine.call.store(call, std::memory_order_release);
  mine.state.store(2 * number + 1, std::memory_order_release);
}

void Words::end(int communicator, std::uint64_t number) {
  if (communicator >= kCommunicators) return;
  at(rank_, communicator).state.store(2 * number, std::memory_order_release);
}

std::string Words::difference(int communicator, std::uint64_t number) const {
  if (communicator >= kCommunicators) return "";
  const std::uint64_t mine = at(rank_, communicator).call.load(std::memory_order_acquire);
  std::string text;
  bool differ = false;
  for (int rank = 0; rank < size_; ++rank) {
    const Word& word = at(rank, communicator);
    if (word.state.load(std::memory_order_acquire) != 2 * number + 1) return "";
    const std::uint64_t call = word.call.load(std::memory_order_acquire);
    if (word.state.load(std::memory_order_acquire) != 2 * number + 1) return "";
    differ = differ || call != mine;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank) + " " + text_of(call);
  }
  return differ ? text : "";
}

}  // namespace ronde::mpi_allreduce
