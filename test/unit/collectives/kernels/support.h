// SPDX-License-Identifier: Apache-2.0
// The common parts of tests of kernels: which instruction sets can run on this machine, numbers
// that are likely to find a mistake, and memory at any alignment that notices writes beyond its
// ends.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "collectives/kernels/reduce.h"
#include "test/unit/collectives/rule_oracle.h"

namespace ronde::collectives::kernel_test {

using base::DType;
using base::ReduceOp;

// The sanitizers make these tests ten times slower, and find in a part of them all that they can.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
inline constexpr std::int64_t kLengthStep = kSanitized ? 13 : 1;

inline std::vector<InstructionSet> available_sets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set :
       {InstructionSet::kPlain, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (set <= best_instruction_set()) sets.push_back(set);
  }
  return sets;
}

inline const char* name_of(InstructionSet set) {
  constexpr std::array kNames{"plain", "AVX2", "AVX-512"};
  return kNames[static_cast<std::size_t>(set)];
}

inline constexpr std::array<std::size_t, 13> kMisalignments{0, 1,  2,  3,  4,  5, 6,
                                                            7, 15, 31, 32, 33, 63};

struct Case {
  DType dtype;
  ReduceOp op;
};

inline std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const base::DTypeRow& dtype : base::kDTypes) {
    for (const base::ReduceOpRow& op : base::kReduceOps) {
      if (base::is_defined(dtype.dtype, op.op)) cases.push_back({dtype.dtype, op.op});
    }
  }
  return cases;
}

inline std::string name_of(const Case& one) {
  return std::string(base::name_of(one.dtype)) + "_" + std::string(base::name_of(one.op));
}

// Returns the bits of NaNs, infinities, zeros, subnormals, the largest numbers, and numbers that
// are hard to round.
inline std::vector<std::uint64_t> special_elements(DType dtype) {
  std::vector<std::uint64_t> elements;
  if (!base::is_floating(dtype)) {
    const auto unused = static_cast<unsigned>(64 - 8 * base::size_of(dtype));
    const std::uint64_t all = ~std::uint64_t{0} >> unused;
    return {0, 1, 2, all, all - 1, all / 2, all / 2 + 1};
  }
  for (const double value : {0.0, -0.0, 1.0, -1.0, 0.1, -3.0, 1e4, 6.1e-5, 2048.0, 2049.0}) {
    elements.push_back(oracle::encode(dtype, value));
  }
  const std::uint64_t infinity = oracle::encode(dtype, INFINITY);
  const std::uint64_t sign = oracle::encode(dtype, -0.0);
  for (const std::uint64_t size : {infinity, infinity + 1, infinity | (infinity >> 1), infinity - 1,
                                   std::uint64_t{1}, std::uint64_t{2}, sign - 1}) {
    elements.push_back(size);
    elements.push_back(size | sign);
  }
  return elements;
}

// Returns an element of one contribution among `ranks`: any bits, or ordinary numbers, or special
// ones, which are rare when there are many ranks, since every result would be a NaN otherwise.
inline std::uint64_t random_element(DType dtype, std::size_t ranks, std::mt19937_64& random) {
  const auto unused = static_cast<unsigned>(64 - 8 * base::size_of(dtype));
  const std::size_t kind = random() % (4 * ranks);
  if (dtype == DType::kBool) return random() % 4 == 0 ? 0 : random() >> unused;
  if (kind == 0) {
    const std::vector<std::uint64_t> special = special_elements(dtype);
    return special[random() % special.size()];
  }
  if (kind == 1 || !base::is_floating(dtype)) return random() >> unused;
  return oracle::encode(dtype, std::uniform_real_distribution<double>(-4.0, 4.0)(random));
}

// Some bytes between two guards.
class GuardedBytes {
 public:
  // Where one is copied to another, their guards must differ for a write beyond the end to show.
  GuardedBytes(std::size_t misalignment, std::span<const std::byte> content,
               std::byte canary = std::byte{0xa5})
      : begin_(kGuard + misalignment), bytes_(content.size()), canary_(canary) {
    memory_.assign(begin_ + bytes_ + kGuard + kAlignment, canary);
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ += (kAlignment - address % kAlignment) % kAlignment;
    std::copy(content.begin(), content.end(), memory_.begin() + offset());
  }
  [[nodiscard]] std::byte* data() { return memory_.data() + begin_; }
  [[nodiscard]] std::span<const std::byte> content() const { return {&memory_[begin_], bytes_}; }
  [[nodiscard]] bool guards_hold() const {
    std::array<std::byte, 4 * kGuard> canaries;
    canaries.fill(canary_);
    const std::size_t end = begin_ + bytes_;
    return std::memcmp(memory_.data(), canaries.data(), begin_) == 0 &&
           std::memcmp(&memory_[end], canaries.data(), memory_.size() - end) == 0;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::size_t kAlignment = 64;
  [[nodiscard]] std::ptrdiff_t offset() const { return static_cast<std::ptrdiff_t>(begin_); }

  std::size_t begin_;
  std::size_t bytes_;
  std::byte canary_;
  std::vector<std::byte> memory_;
};

// Returns the first element that differs, or -1 when none does. Any two NaNs count as equal.
inline std::int64_t first_difference(DType dtype, std::span<const std::byte> a,
                                     std::span<const std::byte> b) {
  if (a.size() != b.size()) return 0;
  if (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0) return -1;
  return oracle::first_difference(dtype, oracle::Bytes(a.begin(), a.end()),
                                  oracle::Bytes(b.begin(), b.end()));
}

}  // namespace ronde::collectives::kernel_test
