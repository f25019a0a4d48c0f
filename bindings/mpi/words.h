// SPDX-License-Identifier: Apache-2.0
// What each rank of a host is in, where the others can see it: a rank that waits in an engine for
// one that waits in MPI would do so for ever.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "bindings/mpi/fitting.h"

namespace ronde::mpi_allreduce {

// A blocking reduction, in 64 bits. `reduction` is nullptr for one that fitting.h does not know.
std::uint64_t call_of(const Reduction* reduction, int count);

// Memory that all ranks share, with a word for each rank and communicator. Calls of a communicator
// are numbered from 1 on, and meet by their numbers.
//
// Thread safety: the words of a communicator are written by one thread at a time.
class Words {
 public:
  // All ranks call it. Returns nullptr where this rank has none; then nobody may use theirs.
  static std::unique_ptr<Words> open(MPI_Comm communicator, int rank, int size);
  ~Words();
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;

  // Communicators beyond have no words, and nothing is noticed there.
  static constexpr int kCommunicators = 256;

  // This rank is in a call of a communicator, and no longer.
  void begin(int communicator, std::uint64_t number, std::uint64_t call);
  void end(int communicator, std::uint64_t number);
  // Where all ranks are in the call with this number and have different ones, a text that says so;
  // else it is empty.
  [[nodiscard]] std::string difference(int communicator, std::uint64_t number) const;

 private:
  struct Word {
    std::atomic<std::uint64_t> state{0};  // twice the number, plus 1 while the rank is in the call
    std::atomic<std::uint64_t> call{0};
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  Words(Word* words, int rank, int size) : words_(words), rank_(rank), size_(size) {}
  static std::size_t bytes_for(int size) {
    return sizeof(Word) * kCommunicators * static_cast<std::size_t>(size);
  }
  [[nodiscard]] Word& at(int rank, int communicator) const {
    return words_[static_cast<std::size_t>(rank) * kCommunicators +
                  static_cast<std::size_t>(communicator)];
  }

  Word* words_;
  int rank_;
  int size_;
};

}  // namespace ronde::mpi_allreduce
