// SPDX-License-Identifier: Apache-2.0
// What every level of Ronde must do alike: operations as values, with the memory that each rank
// starts from and the bytes that the order rule (test/unit/collectives/shape_oracle.h) asks for.
// A driver of a level starts and finishes them; the rest is here and in cases.h.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/operations.h"
#include "base/tensor.h"
#include "collectives/kernels/reduce.h"
#include "test/unit/collectives/rule_oracle.h"
#include "test/unit/collectives/shape_oracle.h"

namespace ronde::conformance {

using base::DType;
using base::Operation;
using base::ReduceOp;
using collectives::Reduction;
using collectives::oracle::Bytes;
using Rows = std::vector<std::int64_t>;
using collectives::oracle::Hosts;

// An operation of one rank.
struct Case {
  enum class Memory : std::uint8_t {
    kInPlace,
    kApart,
    kOnBoard,  // in place, in memory that the ranks of the host share; or the input alone there
    kResult,   // the operation makes its output
  };
  struct Tensor {
    Bytes input;
    Bytes expected;
    double weight = 1.0;  // of this rank, in an average by weights
  };

  std::string name;
  Operation operation = Operation::kAllreduce;
  Reduction what;  // the dtype is that of what is only moved, too
  bool weighted = false;
  Memory memory = Memory::kInPlace;
  std::vector<Tensor> tensors;  // several, of f32: one group
  std::int32_t root = 0;
  std::int64_t width = 1;  // elements of a row
  Rows splits;             // as they are submitted
  Rows rows;               // as an exchange has them: those of each rank's block, or those to each
  Rows received;           // the rows that an all-to-all brings from each rank
  std::int64_t first = 0;  // a reduce-scatter in place: the first element of this rank's rows

  [[nodiscard]] bool is_group() const { return tensors.size() > 1; }
  [[nodiscard]] bool makes_result() const { return base::row(operation).makes_result(); }
  [[nodiscard]] bool is_in_place() const {
    return memory == Memory::kInPlace || memory == Memory::kOnBoard;
  }
  [[nodiscard]] DType dtype() const { return what.dtype; }
  [[nodiscard]] std::int64_t elements(std::size_t tensor) const {
    return std::ssize(tensors[tensor].input) / base::size_of(dtype());
  }
  [[nodiscard]] base::Shape shape(std::size_t tensor) const {
    return width == 1 ? base::Shape{elements(tensor)}
                      : base::Shape{elements(tensor) / width, width};
  }
};

// `count` elements from `first` on.
inline Bytes part_of(const Bytes& all, DType dtype, std::int64_t first, std::int64_t count) {
  const auto begin = all.begin() + first * base::size_of(dtype);
  return {begin, begin + count * base::size_of(dtype)};
}

// kRounded: as a library sums and scales that keeps to no order: of numbers whose sums are exact
// (Numbers::kWhole in cases.h) only what is scaled is rounded, each time otherwise.
enum class Precision : std::uint8_t { kExact, kRounded };

// A case under way: its memory, and what has come of it.
//
// Thread safety: none; one thread uses it.
class Running {
 public:
  explicit Running(const Case& of, Precision precision = Precision::kExact)
      : of_(&of), precision_(precision) {}

  [[nodiscard]] const Case& of() const { return *of_; }
  // Fills the memory; may be called again when the operation is over.
  void prepare() {
    inputs_.clear();
    outputs_.clear();
    for (const Case::Tensor& tensor : of_->tensors) {
      const bool apart = of_->memory == Case::Memory::kApart;
      inputs_.push_back(tensor.input);
      outputs_.push_back(apart ? Bytes(tensor.expected.size(), kMark) : tensor.input);
      outputs_.back().insert(outputs_.back().end(), kGuard, kMark);
    }
  }
  // What the operation reads, and where it writes; the same address where it works in place.
  [[nodiscard]] std::byte* input(std::size_t tensor) {
    return of_->is_in_place() ? outputs_[tensor].data() : inputs_[tensor].data();
  }
  [[nodiscard]] std::byte* output(std::size_t tensor) {
    return outputs_[tensor].data() + of_->first * base::size_of(of_->dtype());
  }

  // The same memory as a whole, with what lies behind an output, for a driver that has it
  // elsewhere.
  [[nodiscard]] Bytes& input_block(std::size_t tensor) { return inputs_[tensor]; }
  [[nodiscard]] Bytes& output_block(std::size_t tensor) { return outputs_[tensor]; }

  // What the driver hands in of an operation that makes its output, and the rows of an all-to-all.
  Bytes result;
  Rows received;

  // Describes what is wrong; empty when nothing is. Counts the bits.
  [[nodiscard]] std::string difference() {
    if (of_->memory == Case::Memory::kApart || of_->memory == Case::Memory::kResult) {
      for (std::size_t i = 0; i < inputs_.size(); ++i) {
        if (inputs_[i] != of_->tensors[i].input) return "the input has changed";
      }
    }
    if (of_->operation == Operation::kAllToAll && received != of_->received) {
      return "the received splits";
    }
    for (std::size_t i = 0; i < of_->tensors.size(); ++i) {
      const Bytes& expected = of_->tensors[i].expected;
      if (Bytes(outputs_[i].end() - kGuard, outputs_[i].end()) != Bytes(kGuard, kMark)) {
        return "it wrote beyond its output";
      }
      const std::string wrong =
          compare(of_->makes_result() ? result
                                      : part_of(outputs_[i], of_->dtype(), of_->first,
                                                std::ssize(expected) / base::size_of(of_->dtype())),
                  expected);
      if (!wrong.empty()) return (of_->is_group() ? std::to_string(i) + ": " : "") + wrong;
    }
    return "";
  }
  // A hash of the results that difference() has seen, in which a NaN counts as any other.
  [[nodiscard]] std::uint64_t bits() const { return bits_; }

 private:
  static constexpr std::byte kMark{0x5A};
  static constexpr std::ptrdiff_t kGuard = 16;  // bytes behind every output

  std::string compare(const Bytes& got, const Bytes& expected) {
    using namespace collectives::oracle;
    const DType dtype = of_->dtype();
    for (std::int64_t i = 0; i < std::ssize(got) / base::size_of(dtype); ++i) {
      const std::uint64_t element = load(dtype, got.data(), i);
      const bool is_nan = base::is_floating(dtype) && std::isnan(decode(dtype, element));
      bits_ = (bits_ ^ (is_nan ? ~std::uint64_t{0} : element)) * 0x100000001B3U;  // FNV's prime
    }
    if (got.size() != expected.size()) {
      return std::to_string(got.size()) + " bytes, expected " + std::to_string(expected.size());
    }
    const std::int64_t at = first_difference(dtype, got, expected);
    if (at < 0 || (precision_ == Precision::kRounded && is_rounded_like(got, expected))) return "";
    return "element " + std::to_string(at) + " has the bits " +
           std::to_string(load(dtype, got.data(), at)) + ", expected " +
           std::to_string(load(dtype, expected.data(), at));
  }

  // Whether a scaled result of a floating type differs by a few roundings at most.
  [[nodiscard]] bool is_rounded_like(const Bytes& got, const Bytes& expected) const {
    using namespace collectives::oracle;
    const Reduction& what = of_->what;
    const bool scales =
        what.op == ReduceOp::kAverage || what.prescale != 1.0 || what.postscale != 1.0;
    if (!scales || !base::is_floating(what.dtype)) return false;
    const DType wire = base::wire_dtype(what.dtype, what.compression);
    const int digits = wire == DType::kBf16  ? 8
                       : wire == DType::kF16 ? 11
                       : wire == DType::kF32 ? 24
                                             : 53;
    for (std::int64_t i = 0; i < std::ssize(got) / base::size_of(what.dtype); ++i) {
      const double right = decode(what.dtype, load(what.dtype, expected.data(), i));
      const double apart = decode(what.dtype, load(what.dtype, got.data(), i)) - right;
      if (!(std::fabs(apart) <= kRoundings * two_to(-digits) * std::fabs(right))) return false;
    }
    return true;
  }

  static constexpr double kRoundings = 8;  // of half a unit each

  const Case* of_;
  Precision precision_;
  std::vector<Bytes> inputs_;
  std::vector<Bytes> outputs_;
  std::uint64_t bits_ = 0xCBF29CE484222325U;  // FNV's first value
};

// The hosts of a job by the lowest rank on the host of each rank.
inline Hosts hosts_of(const std::vector<std::int32_t>& leaders) {
  Hosts hosts;
  for (std::int32_t leader = 0; std::cmp_less(leader, leaders.size()); ++leader) {
    std::vector<int> ranks;
    for (int rank = 0; std::cmp_less(rank, leaders.size()); ++rank) {
      if (leaders[static_cast<std::size_t>(rank)] == leader) ranks.push_back(rank);
    }
    if (!ranks.empty()) hosts.push_back(std::move(ranks));
  }
  return hosts;
}

}  // namespace ronde::conformance
