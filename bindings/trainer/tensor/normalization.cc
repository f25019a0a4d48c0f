// SPDX-License-Identifier: Apache-2.0
// Batch normalisation: oneDNN's, and plain loops for what ranks add up between two passes over the
// numbers.
#include "bindings/trainer/tensor/normalization.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/kernels.h"
#include "bindings/trainer/tensor/operation_shapes.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

namespace {

// A tensor in row-major order as rows of `inner` numbers of one channel each.
struct Rows {
  explicit Rows(const Shape& shape) : samples(shape[0]), channels(shape[1]) {
    for (std::size_t i = 2; i < shape.size(); ++i) inner *= shape[i];
  }
  // Calls visit(channel, first element) for each row.
  template <typename Visit>
  void each(const Visit& visit) const {
    for (std::size_t row = 0; row < samples * channels; ++row) visit(row % channels, row * inner);
  }

  std::size_t samples;
  std::size_t channels;
  std::size_t inner = 1;
};

void require_channels(const Tensor& input, const Tensor& scale, const Tensor& shift) {
  if (input.shape().size() != 2) require_sides("batch_norm", input, 4);
  for (const Tensor* const each : {&scale, &shift}) {
    require_sides("batch_norm", *each, 1);
    if (each->side(0) == input.side(1)) continue;
    refuse_shapes("batch_norm", input, *each, "there must be an element for each channel (side 1)");
  }
}

double count_of(const Shape& shape) {
  return static_cast<double>(shape[0]) * static_cast<double>(Rows(shape).inner);
}

// The mean of one number is that number: nothing of it would be left. No number at all is a rank
// without samples.
void require_several(const Tensor& input, const Tensor& scale, double count) {
  if (count != 1.0) return;
  throw TrainerError(
      "batch_norm with " + described(scale) +
      ": expected more than 1 value per channel when training, got " + described(input) +
      ": choose a batch that leaves no rank and no micro-batch with a single sample, "
      "or sum the statistics over the ranks");
}

// Adds up value(channel, i) over the elements of each channel in double precision, in eight lanes
// that the compiler can add at once; their order is always the same.
template <typename Value>
std::vector<double> sums_of(const Rows& rows, const Value& value) {
  constexpr std::size_t kLanes = 8;
  std::vector<double> sums(rows.channels, 0.0);
  rows.each([&](std::size_t channel, std::size_t first) {
    std::array<double, kLanes> lanes{};
    const std::size_t whole = rows.inner / kLanes * kLanes;
    for (std::size_t i = 0; i < whole; i += kLanes) {
      for (std::size_t j = 0; j < kLanes; ++j) lanes[j] += value(channel, first + i + j);
    }
    for (std::size_t i = whole; i < rows.inner; ++i) lanes[0] += value(channel, first + i);
    for (const double lane : lanes) sums[channel] += lane;
  });
  return sums;
}

// What both directions need: the input, and how it was normalised.
struct Statistics {
  Values input;  // row-major
  Values mean;
  std::vector<float> inverse_deviation;
  Values scale;
};

std::vector<float> inverse_deviations(std::span<const float> variance, float epsilon) {
  std::vector<float> inverse(variance.size());
  std::ranges::transform(variance, inverse.begin(),
                         [=](float one) { return 1.0F / std::sqrt(one + epsilon); });
  return inverse;
}

// The mean of the gradient by the output, and of it times the normalised input, by channel: what
// the statistics' own dependence on the input takes off. Zeros where they were given.
struct Means {
  std::vector<double> gradient;
  std::vector<double> product;
};

// The sums over this rank's samples; they are the gradients by shift and scale.
Means sums_of_gradient(const Statistics& by, const Values& gradient) {
  const Rows rows(by.input.shape);
  const float* const from = by.input.data();
  const float* const slope = gradient.data();
  const float* const mean = by.mean.data();
  Means sums;
  sums.gradient = sums_of(rows, [=](std::size_t, std::size_t i) { return double{slope[i]}; });
  sums.product = sums_of(rows, [=](std::size_t channel, std::size_t i) {
    return double{slope[i]} * double{from[i] - mean[channel]};
  });
  for (std::size_t i = 0; i < rows.channels; ++i) {
    sums.product[i] *= double{by.inverse_deviation[i]};
  }
  return sums;
}

Values by_input(MemoryPool& pool, const Statistics& by, const Values& gradient,
                const Means& means) {
  const Rows rows(by.input.shape);
  Values result = Values::make(pool, by.input.shape);
  const float* const from = by.input.data();
  const float* const slope = gradient.data();
  float* const to = result.data();
  rows.each([&](std::size_t channel, std::size_t first) {
    const float mean = by.mean.data()[channel];
    const float inverse = by.inverse_deviation[channel];
    const float factor = inverse * by.scale.data()[channel];
    const auto level = static_cast<float>(means.gradient[channel]);
    const float tilt = static_cast<float>(means.product[channel]) * inverse;
    for (std::size_t i = first; i < first + rows.inner; ++i) {
      to[i] = (slope[i] - level - (from[i] - mean) * tilt) * factor;
    }
  });
  return result;
}

float rounded(double value) { return static_cast<float>(value); }

void give_sums(Backward& back, std::size_t input, const std::vector<double>& sums) {
  if (!back.wants(input)) return;
  Values room = back.room(input);
  std::ranges::transform(sums, room.plain().begin(), rounded);
  back.give(input, std::move(room));
}

// The two sums over all ranks as means over `count`.
Means means_over_ranks(const Means& own, double count, const SumOverRanks& sum) {
  const std::size_t channels = own.gradient.size();
  std::vector<double> all(own.gradient);
  all.insert(all.end(), own.product.begin(), own.product.end());
  sum(all);
  for (double& each : all) each = count > 0.0 ? each / count : 0.0;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(channels);
  return {std::vector<double>(all.begin(), middle), std::vector<double>(middle, all.end())};
}

// The statistics over all ranks. The variance takes a second pass, around the mean: a difference of
// large sums would lose its digits.
struct Over {
  Values mean;
  Values variance;
  double count = 0.0;
};

Over statistics_over_ranks(MemoryPool& pool, const Values& input, const SumOverRanks& sum) {
  const Rows rows(input.shape);
  const float* const from = input.data();
  std::vector<double> sums =
      sums_of(rows, [=](std::size_t, std::size_t i) { return double{from[i]}; });
  sums.push_back(static_cast<double>(rows.samples));
  sum(sums);
  Over all;
  all.count = sums.back() * static_cast<double>(rows.inner);
  const auto mean_of = [&all](double total) {
    return all.count > 0.0 ? rounded(total / all.count) : 0.0F;
  };
  all.mean = Values::make(pool, {rows.channels});
  std::transform(sums.begin(), sums.end() - 1, all.mean.data(), mean_of);
  const float* const mean = all.mean.data();
  std::vector<double> squares = sums_of(rows, [=](std::size_t channel, std::size_t i) {
    const double distance = double{from[i] - mean[channel]};
    return distance * distance;
  });
  sum(squares);
  all.variance = Values::make(pool, {rows.channels});
  std::ranges::transform(squares, all.variance.data(), mean_of);
  return all;
}

}  // namespace

BatchNormalized batch_norm(const Tensor& input, const Tensor& scale, const Tensor& shift,
                           float epsilon) {
  require_channels(input, scale, shift);
  require_several(input, scale, count_of(input.shape()));
  Tape& tape = input.tape();
  const Values& from = input.raw();
  const Values factors = tape.plain(scale.raw());
  Normalized made =
      tape.kernels().normalize(from, factors, tape.plain(shift.raw()), epsilon, {}, {});
  BatchNormalized result{{}, made.mean, made.variance, count_of(from.shape)};
  Values output = made.output;
  made.output = {};  // the way back does not need it, so its memory is free when its users are done
  const auto backward = [from, factors, epsilon, made = std::move(made)](Backward& back) {
    MemoryPool& pool = back.tape().pool();
    const auto room = [&](std::size_t i) {
      return back.wants(i) ? back.room(i) : Values::make(pool, factors.shape);
    };
    Values by_scale = room(1);
    Values by_shift = room(2);
    Values by_input = back.tape().kernels().normalize_backward(from, back.gradient(), made, factors,
                                                               epsilon, by_scale, by_shift);
    if (back.wants(0)) back.give(0, std::move(by_input));
    if (back.wants(1)) back.give(1, std::move(by_scale));
    if (back.wants(2)) back.give(2, std::move(by_shift));
  };
  result.output = tape.record("batch_norm", std::move(output), {input, scale, shift}, backward);
  return result;
}

BatchNormalized batch_norm_over_ranks(const Tensor& input, const Tensor& scale, const Tensor& shift,
                                      float epsilon, const SumOverRanks& sum) {
  require_channels(input, scale, shift);
  Tape& tape = input.tape();
  Statistics by{tape.plain(input.raw()), {}, {}, tape.plain(scale.raw())};
  const Over all = statistics_over_ranks(tape.pool(), by.input, sum);
  require_several(input, scale, all.count);
  by.mean = all.mean;
  by.inverse_deviation = inverse_deviations(all.variance.plain(), epsilon);
  Values output = tape.kernels()
                      .normalize(input.raw(), by.scale, tape.plain(shift.raw()), epsilon, all.mean,
                                 all.variance)
                      .output;
  const auto backward = [by = std::move(by), count = all.count, sum](Backward& back) {
    const Values gradient = back.plain_gradient();
    const Means sums = sums_of_gradient(by, gradient);
    if (back.wants(0)) {
      const Means means = means_over_ranks(sums, count, sum);
      back.give(0, by_input(back.tape().pool(), by, gradient, means));
    }
    give_sums(back, 1, sums.product);
    give_sums(back, 2, sums.gradient);
  };
  Tensor recorded = tape.record("batch_norm", std::move(output), {input, scale, shift}, backward);
  return {std::move(recorded), all.mean, all.variance, all.count};
}

Tensor batch_norm_as_given(const Tensor& input, const Tensor& scale, const Tensor& shift,
                           float epsilon, std::span<const float> mean,
                           std::span<const float> variance) {
  require_channels(input, scale, shift);
  if (mean.size() != input.side(1) || variance.size() != input.side(1)) {
    throw TrainerError("batch_norm: " + described(input) + " with a mean of " +
                       std::to_string(mean.size()) + " and a variance of " +
                       std::to_string(variance.size()) +
                       " elements: give an element for each channel (side 1)");
  }
  Tape& tape = input.tape();
  const Values means = tape.constant({mean.size()}, mean).raw();
  const Values variances = tape.constant({variance.size()}, variance).raw();
  const Values factors = tape.plain(scale.raw());
  Normalized made = tape.kernels().normalize(input.raw(), factors, tape.plain(shift.raw()), epsilon,
                                             means, variances);
  const auto backward = [from = input.raw(), factors, means, variances, epsilon](Backward& back) {
    const Values gradient = back.plain_gradient();
    const Statistics by{back.tape().plain(from), means,
                        inverse_deviations(variances.plain(), epsilon), factors};
    const Means sums = sums_of_gradient(by, gradient);
    const std::vector<double> none(sums.gradient.size(), 0.0);
    if (back.wants(0)) back.give(0, by_input(back.tape().pool(), by, gradient, {none, none}));
    give_sums(back, 1, sums.product);
    give_sums(back, 2, sums.gradient);
  };
  return tape.record("batch_norm", std::move(made.output), {input, scale, shift}, backward);
}

}  // namespace ronde::trainer
