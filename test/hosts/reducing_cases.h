// SPDX-License-Identifier: Apache-2.0
// The operations that reduce: allreduce, alone and in groups, and reduce-scatter.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <ronde/ronde.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "test/hosts/operation_cases.h"

namespace ronde::testing {

class AllreduceCase final : public TwoBuffers {
 public:
  AllreduceCase(const std::string& name, const Reduction& what, Bytes input, Bytes expected,
                bool in_place)
      : TwoBuffers(name, what.dtype, std::move(input), std::move(expected)),
        what_(what),
        in_place_(in_place) {}

  void prepare() override {
    if (in_place_) {
      output_ = before_;
    } else {
      output_.assign(before_.size(), kMark);
    }
  }
  Work submit(Engine& engine) override {
    return with_type(dtype(), [&]<typename T>() {
      const auto op = static_cast<Op>(what_.op);
      if (in_place_) return engine.allreduce(name(), span_of<T>(output_), op, options_of(what_));
      return engine.allreduce(name(), span_of<T>(std::as_const(input_)), span_of<T>(output_), op,
                              options_of(what_));
    });
  }
  [[nodiscard]] std::string check(const Work& /*done*/) const override {
    if (input_ != before_) return "the input has changed";
    return compare(output_, expected_);
  }

 private:
  const Reduction what_;
  const bool in_place_;
};

inline void add_allreduce(JobOfCases& job, const Reduction& what, std::int64_t elements,
                          bool in_place) {
  std::vector<Bytes> inputs = job.telling(what.dtype, elements);
  Bytes expected = job.reduced(what, inputs);
  const std::string name = job.name("allreduce " + text_of(what) + " of " +
                                    std::to_string(elements) + (in_place ? " in place" : ""));
  job.add(std::make_unique<AllreduceCase>(name, what,
                                          std::move(inputs[static_cast<std::size_t>(job.rank())]),
                                          std::move(expected), in_place));
}

// An allreduce in memory that the ranks of the host share.
class BoardCase final : public Case {
 public:
  BoardCase(const std::string& name, const Engine& engine, Bytes input, Bytes expected)
      : Case(name, DType::kF32),
        input_(std::move(input)),
        expected_(std::move(expected)),
        memory_(engine, input_.size() / sizeof(float)) {}

  void prepare() override {
    const std::span<const float> from = span_of<float>(std::as_const(input_));
    std::copy(from.begin(), from.end(), memory_.span().begin());
  }
  Work submit(Engine& engine) override { return engine.allreduce(name(), memory_.span(), sum); }
  [[nodiscard]] std::string check(const Work& /*done*/) const override {
    const auto got = std::as_bytes(memory_.span());
    return compare(Bytes(got.begin(), got.end()), expected_);
  }

 private:
  Bytes input_;
  const Bytes expected_;
  Buffer<float> memory_;
};

inline void add_allreduce_on_board(JobOfCases& job, std::int64_t elements) {
  std::vector<Bytes> inputs = job.telling(DType::kF32, elements);
  Bytes expected = job.reduced({}, inputs);
  job.add(std::make_unique<BoardCase>(
      job.name("allreduce on the board of " + std::to_string(elements)), job.engine(),
      std::move(inputs[static_cast<std::size_t>(job.rank())]), std::move(expected)));
}

inline void add_grouped_allreduce(JobOfCases& job, const Reduction& what, const Rows& lengths) {
  std::vector<GroupCase::Tensor> tensors;
  for (const std::int64_t length : lengths) {
    std::vector<Bytes> inputs = job.telling(DType::kF32, length);
    Bytes expected = job.reduced(what, inputs);
    tensors.push_back(
        {std::move(inputs[static_cast<std::size_t>(job.rank())]), std::move(expected)});
  }
  job.add(
      std::make_unique<GroupCase>(job.name("group " + text_of(what)), std::move(tensors), what));
}

// A reduce-scatter: each rank gets its rows of the whole.
class ReduceScatterCase final : public TwoBuffers {
 public:
  ReduceScatterCase(const std::string& name, const Reduction& what, Bytes input, Bytes expected,
                    Rows splits, std::int64_t first, bool in_place)
      : TwoBuffers(name, what.dtype, std::move(input), std::move(expected)),
        what_(what),
        splits_(std::move(splits)),
        first_(first),
        in_place_(in_place) {}

  void prepare() override {
    input_ = before_;
    output_.assign(expected_.size(), kMark);
  }
  Work submit(Engine& engine) override {
    return with_type(dtype(), [&]<typename T>() {
      auto options = options_of<ReduceScatterOptions>(what_);
      options.splits = splits_;
      const std::span<T> share = span_of<T>(input_).subspan(static_cast<std::size_t>(first_),
                                                            expected_.size() / sizeof(T));
      return engine.reduce_scatter(name(), span_of<T>(std::as_const(input_)),
                                   in_place_ ? share : span_of<T>(output_),
                                   static_cast<Op>(what_.op), options);
    });
  }
  [[nodiscard]] std::string check(const Work& /*done*/) const override {
    if (!in_place_ && input_ != before_) return "the input has changed";
    const std::int64_t rows = std::ssize(expected_) / base::size_of(dtype());
    return compare(in_place_ ? part_of(input_, dtype(), first_, rows) : output_, expected_);
  }

 private:
  const Reduction what_;
  const Rows splits_;
  const std::int64_t first_;
  const bool in_place_;
};

// Without splits the rows are shared as evenly as possible.
inline void add_reduce_scatter(JobOfCases& job, const Reduction& what, std::int64_t elements,
                               const Rows& splits, bool in_place) {
  std::vector<Bytes> inputs = job.telling(what.dtype, elements);
  Rows shares = splits;
  for (int rank = 0; splits.empty() && rank < job.size(); ++rank) {
    shares.push_back(elements / job.size() + (rank < elements % job.size() ? 1 : 0));
  }
  const auto mine = static_cast<std::size_t>(job.rank());
  const auto first = std::accumulate(shares.begin(), shares.begin() + job.rank(), std::int64_t{0});
  const std::string name =
      job.name("reduce-scatter " + text_of(what) + " of " + std::to_string(elements) +
               (splits.empty() ? "" : " with splits") + (in_place ? " in place" : ""));
  Bytes expected = job.scattered(what, inputs, first, shares[mine]);
  job.add(std::make_unique<ReduceScatterCase>(name, what, std::move(inputs[mine]),
                                              std::move(expected), splits, first, in_place));
}

}  // namespace ronde::testing
