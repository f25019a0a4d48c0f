// SPDX-License-Identifier: Apache-2.0
// The round of the weights, and after it one collective for each run of tensors that have the same
// weights. A tensor's bits do not depend on what it is fused with, so cutting changes none.
#include "collectives/plane/weighted.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"

namespace ronde::collectives {

namespace {

using base::Result;
using base::Status;

class WeightedAverage final : public Collective {
 public:
  WeightedAverage(DataPlane& plane, Exchange exchange)
      : plane_(plane),
        exchange_(std::move(exchange)),
        ranks_(base::narrow<std::size_t>(exchange_.weights.ranks)),
        tensors_(exchange_.weights.of_tensors.size()),
        all_(ranks_ * tensors_) {
    base::check(tensors_ == exchange_.tensors.size(), "every tensor has its weight");
  }

  Result<StepResult> step() override {
    if (current_ == nullptr) {
      RONDE_ASSIGN_OR_RETURN(current_, gathered_ ? next_run() : gather());
      if (current_ == nullptr) return StepResult::kDone;
    }
    RONDE_ASSIGN_OR_RETURN(const auto stepped, current_->step());
    if (stepped != StepResult::kDone) return stepped;
    current_.reset();
    gathered_ = true;
    skip_refused();
    return next_ == tensors_ ? StepResult::kDone : StepResult::kProgress;
  }

 private:
  Result<DataPlane::CollectivePtr> gather() {
    Exchange weights;
    weights.operation = base::kExchange;
    weights.sequence = exchange_.sequence;
    weights.how.dtype = base::DType::kF64;
    auto* const mine = reinterpret_cast<std::byte*>(exchange_.weights.of_tensors.data());
    weights.tensors = {{mine, nullptr, base::Elements(std::ssize(exchange_.weights.of_tensors)),
                        base::DType::kF64}};
    weights.rows.assign(ranks_, std::ssize(exchange_.weights.of_tensors));
    weights.row = base::Elements(1);
    weights.result = [this](std::span<const std::int64_t> /*rows*/) {
      return Result<std::span<std::byte>>(std::as_writable_bytes(std::span(all_)));
    };
    return plane_.make(weights);
  }

  [[nodiscard]] double weight(std::size_t rank, std::size_t tensor) const {
    return all_[rank * tensors_ + tensor];
  }
  [[nodiscard]] double sum_of(std::size_t tensor) const {
    double sum = 0.0;
    for (std::size_t rank = 0; rank < ranks_; ++rank) sum += weight(rank, tensor);
    return sum;
  }
  [[nodiscard]] bool alike(std::size_t a, std::size_t b) const {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (weight(rank, a) != weight(rank, b)) return false;
    }
    return true;
  }

  // Every rank sees the same weights, and so refuses the same tensors.
  void skip_refused() {
    for (; next_ < tensors_; ++next_) {
      const double sum = sum_of(next_);
      if (sum > 0.0 && std::isfinite(sum)) return;
      exchange_.weights.refuse(
          next_, Status::error(base::Code::kInvalidArgument,
                               "the weights of all ranks add up to " + base::number_text(sum, 17) +
                                   ", so there is no average: give at least one rank a weight "
                                   "above 0, and none near the largest number"));
    }
  }

  // The collective of the next tensors that have the same weights; nullptr: there are none.
  Result<DataPlane::CollectivePtr> next_run() {
    if (next_ == tensors_) return DataPlane::CollectivePtr();
    const std::size_t first = next_;
    while (next_ < tensors_ && alike(first, next_)) ++next_;
    Exchange run = exchange_;
    run.weights = {};
    const auto begin = exchange_.tensors.begin();
    run.tensors.assign(begin + static_cast<std::ptrdiff_t>(first),
                       begin + static_cast<std::ptrdiff_t>(next_));
    run.how.prescales.clear();
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      run.how.prescales.push_back(exchange_.how.prescale * weight(rank, first));
    }
    run.how.divisor = sum_of(first);
    return plane_.make(run);
  }

  DataPlane& plane_;
  Exchange exchange_;
  const std::size_t ranks_;
  const std::size_t tensors_;
  std::vector<double> all_;  // by rank, then by tensor
  bool gathered_ = false;
  std::size_t next_ = 0;  // the first tensor that is in no run yet
  DataPlane::CollectivePtr current_;
};

}  // namespace

Result<DataPlane::CollectivePtr> make_collective(DataPlane& plane, const Exchange& exchange) {
  if (exchange.weights.of_tensors.empty()) return plane.make(exchange);
  return DataPlane::CollectivePtr(std::make_unique<WeightedAverage>(plane, exchange));
}

}  // namespace ronde::collectives
