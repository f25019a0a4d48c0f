// SPDX-License-Identifier: Apache-2.0
// The call that each rank of a host is in, where the others can see it: a rank that waits in an
// engine for one that waits in MPI would do so for ever, and a call of MPI cannot be left.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "bindings/mpi/fitting.h"

namespace ronde::mpi_allreduce {

// A blocking reduction, in 64 bits: that of Ronde, or one that fitting.h does not know, of which
// the count and the bytes of an element are compared.
std::uint64_t call_of(const Reduction& reduction, int count);
std::uint64_t call_of_mpi(int count, int element_bytes);

// What a rank knows of a call that it is in.
enum class Meeting : std::uint8_t { kWaits, kEqual, kDiffers };

// Memory that all ranks share, with an entry for each rank and communicator: the number and the
// kind of the last call that the rank has entered. Calls of a communicator are numbered from 1 on.
//
// A rank goes on from a call to the next when it has seen all ranks in it with equal calls, or when
// the engine is through with it, in which all ranks must be for that. So a rank that looks at a
// call and finds another beyond it knows that the calls are equal: one that still looks has not
// come to the engine. And where calls differ no rank can go on before all have seen it, and met in
// the engine. No rank is further than one call beyond another: two kinds are kept. A rank that
// gives up has all others take every call for equal, so that none waits for it.
//
// Thread safety: the entries of a communicator are written by one thread at a time.
class CallTable {
 public:
  struct Entry {
    std::atomic<std::uint64_t> number{0};
    std::array<std::atomic<std::uint64_t>, 2> calls{};  // of odd and of even numbers
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  // All ranks call it. Returns nullptr where this rank has no memory; then none may use theirs.
  static std::unique_ptr<CallTable> open(MPI_Comm communicator, int rank, int size);
  // A table in memory of bytes_for(size), all zero, which is unmapped in the end.
  CallTable(Entry* entries, int rank, int size) : entries_(entries), rank_(rank), size_(size) {}
  ~CallTable();
  CallTable(const CallTable&) = delete;
  CallTable& operator=(const CallTable&) = delete;
  static std::size_t bytes_for(int size) {
    return sizeof(Entry) * kEntriesOfRank * static_cast<std::size_t>(size);
  }

  // Communicators beyond have no entries, and nothing is noticed there.
  static constexpr int kCommunicators = 256;

  // This rank is in a call; it may enter it again.
  void enter(int communicator, std::uint64_t number, std::uint64_t call);
  void give_up();
  // What this rank, which is in the call, sees of the others.
  [[nodiscard]] Meeting look(int communicator, std::uint64_t number) const;

 private:
  // One more tells whether the rank has given up, with room, so that no two write to one cache
  // line.
  static constexpr int kEntriesOfRank = kCommunicators + 8;

  [[nodiscard]] Entry& at(int rank, int communicator) const {
    return entries_[static_cast<std::size_t>(rank) * kEntriesOfRank +
                    static_cast<std::size_t>(communicator)];
  }

  Entry* entries_;
  int rank_;
  int size_;
};

}  // namespace ronde::mpi_allreduce
