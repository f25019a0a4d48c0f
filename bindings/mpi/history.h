// SPDX-License-Identifier: Apache-2.0
// The names of the blocking reductions of a communicator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ronde::mpi_allreduce {

// Calls of a communicator meet by their order. A name that told what a call is would keep apart two
// that should meet and differ, and a number would be new for each call. So a name says what the
// calls before were, which all ranks agree on: those that differ then meet under one name, and a
// loop comes back to its names, whatever its calls are.
//
// Thread safety: none.
class History {
 public:
  // The ranks have made a call, all the same.
  void add(std::uint64_t call) {
    last_.at(next_) = call;
    next_ = (next_ + 1) % last_.size();
  }

  // Stands for the calls before, in eight digits.
  [[nodiscard]] std::string text() const {
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < last_.size(); ++i) {
      // The steps of a linear generator: all bits of a call move all higher ones.
      hash = (hash ^ last_.at((next_ + i) % last_.size())) * kFactor;
      hash ^= hash >> 29U;
    }
    std::string digits(8, '0');
    for (char& digit : digits) {
      digit = "0123456789abcdef"[hash >> 60U];
      hash <<= 4U;
    }
    return digits;
  }

 private:
  static constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;

  std::array<std::uint64_t, 4> last_{};
  std::size_t next_ = 0;
};

}  // namespace ronde::mpi_allreduce
