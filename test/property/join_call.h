// SPDX-License-Identifier: Apache-2.0
// The operations of a random program of joins, each compared with a serial oracle: the k-th time
// that a tensor is executed all ranks take part that submit it more often than k times, wherever in
// their steps the others have joined.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/engine.h"
#include "test/property/join_program.h"
#include "test/support/engines.h"

namespace ronde::runtime {

using base::ReduceOp;

// One operation of one rank under way. Its memory must stay until its engine has closed.
class JoinCall {
 public:
  JoinCall(const Program& program, int rank, int round, std::size_t tensor, int time)
      : program_(program), rank_(rank), round_(round), tensor_(tensor), time_(time) {}

  base::Status start(Engine& engine) {
    auto work = engine.submit(make());
    if (work.ok()) work_ = *std::move(work);
    return work.status();
  }
  // What its result has wrong goes to `wrong`.
  base::Status finish(Engine& engine, std::string& wrong) {
    if (work_ == nullptr) return {};
    base::Status done = engine.wait(*work_);
    if (done.ok()) wrong += check();
    return done;
  }

 private:
  [[nodiscard]] std::string name() const { return "t" + std::to_string(tensor_); }
  [[nodiscard]] JoinKind kind() const { return program_.kinds[tensor_]; }
  [[nodiscard]] std::int64_t length() const { return program_.lengths[tensor_]; }
  [[nodiscard]] std::int64_t rows(int rank) const { return (rank + length()) % 4; }

  static Submission of(const std::string& name, Operation operation, ReduceOp op,
                       std::vector<float>& data) {
    Submission submission;
    submission.name = name;
    submission.signature.operation = operation;
    submission.signature.op = op;
    submission.signature.shape = {std::ssize(data)};
    submission.views[0].input = reinterpret_cast<const std::byte*>(data.data());
    if (!row(operation).makes_result()) {
      submission.views[0].output = reinterpret_cast<std::byte*>(data.data());
    }
    return submission;
  }

  void fill(std::int64_t elements) {
    data_.resize(static_cast<std::size_t>(elements));
    for (std::int64_t i = 0; i < elements; ++i) {
      data_[static_cast<std::size_t>(i)] = value_of(rank_, tensor_, time_, i);
    }
  }

  Submission make() {
    const auto reduced = [&](ReduceOp op) { return of(name(), Operation::kAllreduce, op, data_); };
    fill(length());
    Submission submission;
    switch (kind()) {
      case JoinKind::kSum:
        return reduced(ReduceOp::kSum);
      case JoinKind::kAverage:
        return reduced(ReduceOp::kAverage);
      case JoinKind::kPrescaledMax:
        submission = reduced(ReduceOp::kMax);
        submission.signature.prescale = -2.0;
        return submission;
      case JoinKind::kMin:
        return reduced(ReduceOp::kMin);
      case JoinKind::kProduct:
        submission = reduced(ReduceOp::kProduct);
        submission.signature.prescale = 0.5;
        return submission;
      case JoinKind::kWeighted:
        submission = reduced(ReduceOp::kAverage);
        submission.signature.weighted = true;
        submission.weights = {weight_of_join(rank_, time_)};
        return submission;
      case JoinKind::kCompressed:
        submission = reduced(ReduceOp::kSum);
        submission.signature.compression = base::Compression::kBf16;
        return submission;
      case JoinKind::kGroup: {
        second_ = data_;
        std::vector<Submission> members{
            of(name() + "/a", Operation::kAllreduce, ReduceOp::kSum, data_),
            of(name() + "/b", Operation::kAllreduce, ReduceOp::kSum, second_)};
        return group_of(std::move(members)).value();
      }
      case JoinKind::kBroadcast:
        submission = of(name(), Operation::kBroadcast, ReduceOp::kSum, data_);
        submission.signature.root = program_.last(round_, tensor_);
        return submission;
      case JoinKind::kAllgather:
        fill(rows(rank_));
        return of(name(), Operation::kAllgather, ReduceOp::kSum, data_);
      case JoinKind::kReduceScatter:
        submission = of(name(), Operation::kReduceScatter, ReduceOp::kSum, data_);
        second_.assign(static_cast<std::size_t>(share(rank_)), -1.0F);
        submission.views[0].output = reinterpret_cast<std::byte*>(second_.data());
        return submission;
      case JoinKind::kAllToAll:
        for (int to = 0; to < program_.ranks; ++to) submission.splits.push_back(sent(rank_, to));
        fill(std::accumulate(submission.splits.begin(), submission.splits.end(), std::int64_t{0}));
        std::swap(splits_, submission.splits);
        submission = of(name(), Operation::kAllToAll, ReduceOp::kSum, data_);
        submission.splits = splits_;
        return submission;
      case JoinKind::kBarrier:
        submission = testing::barrier_of(name());
        return submission;
    }
    return submission;
  }

  [[nodiscard]] std::int64_t share(int rank) const {
    return length() / program_.ranks + (rank < length() % program_.ranks ? 1 : 0);
  }
  [[nodiscard]] std::int64_t before(int rank) const {
    return length() / program_.ranks * rank +
           std::min<std::int64_t>(rank, length() % program_.ranks);
  }
  [[nodiscard]] std::int64_t sent(int from, int to) const { return (from + 2 * to + length()) % 3; }

  // What an operation that reduces should give for one element.
  [[nodiscard]] double reduced(std::int64_t i) const {
    double result = kind() == JoinKind::kProduct ? 1.0 : 0.0;
    double weights = 0.0;
    bool first = true;
    const auto present = program_.present(round_, tensor_, time_);
    for (const int rank : present) {
      const double value = value_of(rank, tensor_, time_, i);
      switch (kind()) {
        case JoinKind::kPrescaledMax:
          result = first ? -2.0 * value : std::max(result, -2.0 * value);
          break;
        case JoinKind::kMin:
          result = first ? value : std::min(result, value);
          break;
        case JoinKind::kProduct:
          result *= 0.5 * value;
          break;
        case JoinKind::kWeighted:
          weights += weight_of_join(rank, time_);
          result += weight_of_join(rank, time_) * value;
          break;
        default:
          result += value;
      }
      first = false;
    }
    if (kind() == JoinKind::kWeighted) return result / weights;
    return kind() == JoinKind::kAverage ? result / static_cast<double>(present.size()) : result;
  }

  [[nodiscard]] std::string differs(std::span<const float> got,
                                    const std::vector<double>& expected) const {
    if (got.size() != expected.size()) {
      return name() + " has " + std::to_string(got.size()) + " elements, not " +
             std::to_string(expected.size());
    }
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (std::abs(double{got[i]} - expected[i]) <= 1e-5 * std::abs(expected[i])) continue;
      return name() + " of kind " + std::to_string(static_cast<int>(kind())) + ", time " +
             std::to_string(time_) + ": element " + std::to_string(i) + " is " +
             std::to_string(got[i]) + ", not " + std::to_string(expected[i]);
    }
    return "";
  }

  [[nodiscard]] std::string check() const {
    std::vector<double> expected;
    const auto present = program_.present(round_, tensor_, time_);
    const auto result = [&] {
      return std::span(reinterpret_cast<const float*>(work_->output.data()),
                       work_->output.size() / sizeof(float));
    };
    switch (kind()) {
      case JoinKind::kBarrier:
        return "";
      case JoinKind::kBroadcast:
        for (std::int64_t i = 0; i < length(); ++i) {
          expected.push_back(value_of(program_.last(round_, tensor_), tensor_, time_, i));
        }
        return differs(data_, expected);
      case JoinKind::kAllgather:
        for (const int rank : present) {
          for (std::int64_t i = 0; i < rows(rank); ++i) {
            expected.push_back(value_of(rank, tensor_, time_, i));
          }
        }
        return differs(result(), expected);
      case JoinKind::kReduceScatter:
        for (std::int64_t i = 0; i < share(rank_); ++i) {
          expected.push_back(reduced(before(rank_) + i));
        }
        return differs(second_, expected);
      case JoinKind::kAllToAll: {
        std::vector<std::int64_t> received(static_cast<std::size_t>(program_.ranks), 0);
        for (const int from : present) {
          std::int64_t first = 0;
          for (int to = 0; to < rank_; ++to) first += sent(from, to);
          received[static_cast<std::size_t>(from)] = sent(from, rank_);
          for (std::int64_t i = 0; i < sent(from, rank_); ++i) {
            expected.push_back(value_of(from, tensor_, time_, first + i));
          }
        }
        if (work_->received_splits != received) return name() + ": the received splits";
        return differs(result(), expected);
      }
      default:
        for (std::int64_t i = 0; i < length(); ++i) expected.push_back(reduced(i));
        if (kind() != JoinKind::kGroup) return differs(data_, expected);
        return differs(data_, expected) + differs(second_, expected);
    }
  }

  const Program& program_;
  const int rank_;
  const int round_;
  const std::size_t tensor_;
  const int time_;
  std::vector<float> data_;
  std::vector<float> second_;
  std::vector<std::int64_t> splits_;
  Engine::WorkPtr work_;
};

}  // namespace ronde::runtime
