// SPDX-License-Identifier: Apache-2.0
// Operations element by element.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/hash.h"
#include "bindings/trainer/tensor/operation_shapes.h"
#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/random.h"
#include "bindings/trainer/tensor/tape.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer {

namespace {

// Throws unless `b` can be repeated along the first sides of `a`.
void require_repeats(const char* operation, const Tensor& a, const Tensor& b) {
  if (b.size() == 1) return;
  const Shape& whole = a.shape();
  const Shape& part = b.shape();
  if (part.size() <= whole.size() && std::equal(part.rbegin(), part.rend(), whole.rbegin())) return;
  refuse_shapes(operation, a, b,
                "the second must have the last sides of the first, or one element");
}

// Calls element(a, b) for each element of `a` and the element of `b` that is repeated there.
template <typename Element>
Values map_pairs(Tape& tape, const Values& a, const Values& b, const Element& element) {
  Values result = Values::make(tape.pool(), a.shape);
  const std::size_t size = a.size();
  const std::size_t period = b.size();
  const float* const left = a.data();
  const float* const right = b.data();
  float* const out = result.data();
  if (period == 1) {
    for (std::size_t i = 0; i < size; ++i) out[i] = element(left[i], right[0]);
  } else if (period > 0) {
    for (std::size_t first = 0; first < size; first += period) {
      for (std::size_t j = 0; j < period; ++j) out[first + j] = element(left[first + j], right[j]);
    }
  }
  return result;
}

template <typename Element>
Values map(Tape& tape, const Values& input, const Element& element) {
  Values result = Values::make(tape.pool(), input.shape);
  std::ranges::transform(input.plain(), result.data(), element);
  return result;
}

// Adds up a gradient of the shape of `a` over the repetitions of `b`, first to last.
Values sum_repeats(Tape& tape, const Values& gradient, const Values& b) {
  if (gradient.size() == b.size()) {
    Values same = gradient;
    same.shape = b.shape;
    return same;
  }
  Values sums = Values::make(tape.pool(), b.shape);
  const std::span<float> out = sums.plain();
  std::ranges::fill(out, 0.0F);
  const std::span<const float> in = gradient.plain();
  if (out.size() == 1) {
    double sum = 0.0;
    for (const float value : in) sum += value;
    out[0] = static_cast<float>(sum);
  } else if (!out.empty()) {
    for (std::size_t first = 0; first < in.size(); first += out.size()) {
      for (std::size_t j = 0; j < out.size(); ++j) out[j] += in[first + j];
    }
  }
  return sums;
}

// a + sign * b.
Tensor add_scaled(const char* operation, const Tensor& a, const Tensor& b, float sign) {
  require_repeats(operation, a, b);
  Tape& tape = a.tape();
  const Values left = tape.plain(a.raw());
  const Values right = tape.plain(b.raw());
  Values output = map_pairs(tape, left, right, [sign](float x, float y) { return x + sign * y; });
  return tape.record(operation, std::move(output), {a, b}, [right, sign](Backward& back) {
    const Values gradient = back.plain_gradient();
    if (back.wants(0)) back.give(0, gradient);
    if (!back.wants(1)) return;
    Values summed = sum_repeats(back.tape(), gradient, right);
    if (sign != 1.0F) summed = map(back.tape(), summed, [](float value) { return -value; });
    back.give(1, std::move(summed));
  });
}

Values drop_mask(Tape& tape, const Shape& shape, double rate, std::string_view layer) {
  const Pass& pass = tape.pass();
  const auto refuse = [&](const std::string& what) {
    throw TrainerError("dropout of " + std::string(layer) + ": " + what + " to Tape::begin()");
  };
  if (shape.empty() || pass.samples.size() != shape[0]) {
    refuse(text_of(shape) + " for " + std::to_string(pass.samples.size()) +
           " samples: give the number of each sample");
  }
  if (!pass.repetitions.empty() && pass.repetitions.size() != pass.samples.size()) {
    refuse(std::to_string(pass.repetitions.size()) + " repetitions for " +
           std::to_string(pass.samples.size()) + " samples: give one for each, or none,");
  }
  if (!pass.epoch) refuse("each pass would drop the same: give an epoch, or a number of the pass,");
  Hash name;
  name.add(std::as_bytes(std::span(layer)));
  const std::uint64_t drawn = tape.drawn(name.value()) << 32;
  Values mask = Values::make(tape.pool(), shape);
  const float scale = static_cast<float>(1.0 / (1.0 - rate));
  const float limit = static_cast<float>(rate);
  const std::size_t each = shape[0] == 0 ? 0 : mask.size() / shape[0];
  for (std::size_t i = 0; i < shape[0]; ++i) {
    // Nothing else matters to the drawing for a sample, in whatever batch it comes.
    const std::uint64_t again = drawn | (pass.repetitions.empty() ? 0 : pass.repetitions[i]);
    const std::uint64_t stream =
        Generator(*pass.epoch, pass.samples[i]).next() ^ (again == 0 ? 0 : Generator(again).next());
    Generator generator(Generator(name.value() ^ stream, pass.seed).next());
    for (float& value : mask.plain().subspan(i * each, each)) {
      value = generator.uniform(0.0F, 1.0F) < limit ? 0.0F : scale;
    }
  }
  return mask;
}

}  // namespace

Tensor operator+(const Tensor& a, const Tensor& b) { return add_scaled("add", a, b, 1.0F); }
Tensor operator-(const Tensor& a, const Tensor& b) { return add_scaled("subtract", a, b, -1.0F); }

Tensor operator*(const Tensor& a, const Tensor& b) {
  require_repeats("multiply", a, b);
  Tape& tape = a.tape();
  const Values left = tape.plain(a.raw());
  const Values right = tape.plain(b.raw());
  const auto product = [](float x, float y) { return x * y; };
  return tape.record("multiply", map_pairs(tape, left, right, product), {a, b},
                     [left, right, product](Backward& back) {
                       const Values gradient = back.plain_gradient();
                       Tape& on = back.tape();
                       if (back.wants(0)) back.give(0, map_pairs(on, gradient, right, product));
                       if (!back.wants(1)) return;
                       back.give(1, sum_repeats(on, map_pairs(on, gradient, left, product), right));
                     });
}

Tensor operator*(const Tensor& a, float factor) {
  Tape& tape = a.tape();
  const auto scale = [factor](float value) { return factor * value; };
  return tape.record("scale", map(tape, tape.plain(a.raw()), scale), {a}, [scale](Backward& back) {
    back.give(0, map(back.tape(), back.plain_gradient(), scale));
  });
}

Tensor sigmoid(const Tensor& input) {
  Tape& tape = input.tape();
  const Values output = map(tape, tape.plain(input.raw()),
                            [](float value) { return 1.0F / (1.0F + std::exp(-value)); });
  return tape.record("sigmoid", output, {input}, [output](Backward& back) {
    back.give(0, map_pairs(back.tape(), back.plain_gradient(), output,
                           [](float gradient, float y) { return gradient * y * (1.0F - y); }));
  });
}

Tensor dropout(const Tensor& input, double rate, std::string_view layer) {
  if (!(rate >= 0.0 && rate < 1.0)) {
    throw TrainerError("dropout of " + std::string(layer) + ": the rate is " + number_text(rate) +
                       ": use one from 0 to below 1");
  }
  Tape& tape = input.tape();
  if (!tape.pass().training || rate == 0.0) return input;
  const Values mask = drop_mask(tape, input.shape(), rate, layer);
  const auto product = [](float x, float y) { return x * y; };
  return tape.record("dropout", map_pairs(tape, tape.plain(input.raw()), mask, product), {input},
                     [mask, product](Backward& back) {
                       back.give(0, map_pairs(back.tape(), back.plain_gradient(), mask, product));
                     });
}

}  // namespace ronde::trainer
