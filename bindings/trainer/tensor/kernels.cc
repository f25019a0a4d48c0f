// SPDX-License-Identifier: Apache-2.0
// The computations by oneDNN (version 2).
#include "bindings/trainer/tensor/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/primitives.h"

namespace ronde::trainer {

namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Key = PrimitiveKey;

memory::desc any_order(const Shape& shape) {
  return {dims_of(shape), memory::data_type::f32, Tag::any};
}

// A window as oneDNN's descriptors take it.
struct Moves {
  explicit Moves(const Window& window)
      : sides(dims_of(window.side)),
        strides(dims_of(window.stride)),
        padding(dims_of(window.padding)) {}

  memory::dims sides;
  memory::dims strides;
  memory::dims padding;
};

// As those of a batch without samples; they have memory all the same, so are not empty().
bool has_no_elements(const Values& values) { return elements_of(values.shape) == 0; }

void fill_zeros(const Values& values) {
  if (!values.empty()) std::ranges::fill(values.plain(), 0.0F);
}

}  // namespace

Kernels::Kernels(MemoryPool& pool, int threads) {
  if (threads < 1) {
    throw TrainerError("a tape computes with " + std::to_string(threads) +
                       " threads: use at least 1");
  }
  try {
    primitives_ = std::make_unique<Primitives>(pool, threads);
  } catch (const dnnl::error& error) {
    throw TrainerError(std::string("oneDNN does not start: ") + error.what());
  }
}

Kernels::~Kernels() = default;

void Kernels::begin_pass() { primitives_->begin_pass(); }
std::size_t Kernels::held() const { return primitives_->held(); }

Values Kernels::plain(const Values& values) {
  return values.layout == nullptr ? values : primitives_->reordered(values, nullptr);
}

Values Kernels::add(const Values& a, const Values& b) {
  const Values other = a.layout == b.layout ? b : primitives_->reordered(b, a.layout);
  Values result = primitives_->in_layout(a.shape, a.layout);
  const std::span left(a.data(), floats_of(a));
  std::ranges::transform(left, std::span(other.data(), left.size()), result.data(), std::plus<>());
  return result;
}

namespace {

// Whether oneDNN's product of matrices loses a third or more of its time to the transposition.
bool is_slow_transposed(const Values& a, const Values& b) {
  constexpr std::size_t kFewRows = 8;
  constexpr std::size_t kManyElements = 200'000;
  return a.shape.at(0) >= kFewRows && b.size() >= kManyElements;
}

// c = a * b, with `b` transposed as it lies in memory.
void multiply_transposed(Primitives& the, const Values& a, const Values& b, const Values& c) {
  Primitive& product = the.prepared(Key("a product") << a.shape << b.shape, {&a, &b}, [&] {
    const memory::desc right({dim(b.shape[1]), dim(b.shape[0])}, memory::data_type::f32, Tag::ba);
    const dnnl::matmul::primitive_desc made({desc_of(a), right, desc_of(c)}, the.engine());
    Primitive result = the.with(made, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST});
    result.arguments[1].layout = nullptr;  // it is our row-major order, with the sides swapped
    return result;
  });
  the.run(product, {&a, &b, &c});
}

}  // namespace

void Kernels::multiply(const Values& a, bool transpose_a, const Values& b, bool transpose_b,
                       Values& c, bool add) {
  if (has_no_elements(c)) return;
  if (has_no_elements(a)) return add ? void() : fill_zeros(c);
  if (!add && !transpose_a && transpose_b && is_slow_transposed(a, b)) {
    return multiply_transposed(*primitives_, a, b, c);
  }
  const std::size_t terms = a.shape.at(transpose_a ? 0 : 1);
  const Working working(primitives_->threads());
  const dnnl_status_t status = dnnl_sgemm(
      transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', dim(c.shape.at(0)), dim(c.shape.at(1)),
      dim(terms), 1.0F, a.plain().data(), dim(a.shape.at(1)), b.plain().data(), dim(b.shape.at(1)),
      add ? 1.0F : 0.0F, c.plain().data(), dim(c.shape.at(1)));
  if (status != dnnl_success) {
    throw TrainerError("oneDNN cannot multiply a matrix of " + text_of(a.shape) + " with one of " +
                       text_of(b.shape) + ": use other sizes, or report this with them");
  }
}

namespace {

constexpr auto kDirect = dnnl::algorithm::convolution_direct;

// What the three primitives of a convolution have in common: each chooses its layouts.
struct ConvolutionSizes {
  ConvolutionSizes(const dnnl::engine& engine, const Shape& input, const Shape& filters,
                   const Values& with_bias, const Window& window)
      : moves(window),
        source(any_order(input)),
        weights(any_order(filters)),
        bias(with_bias.empty() ? memory::desc() : desc_of(with_bias)),
        result(any_order(windowed(input, window, filters.at(0)))),
        forward({dnnl::prop_kind::forward_training, kDirect, source, weights, bias, result,
                 moves.strides, moves.padding, moves.padding},
                engine) {}

  Moves moves;
  memory::desc source;
  memory::desc weights;
  memory::desc bias;
  memory::desc result;
  dnnl::convolution_forward::primitive_desc forward;
};

}  // namespace

Values Kernels::convolve(const Values& input, const Values& weights, const Values& bias,
                         const Window& window) {
  Primitives& the = *primitives_;
  const Shape shape = windowed(input.shape, window, weights.shape.at(0));
  if (has_no_elements(input)) return Values::make(the.pool(), shape);
  const Key key = Key("a convolution") << input.shape << weights.shape << bias.shape << window;
  Primitive& convolution = the.prepared(key, {&input, &weights}, [&] {
    const ConvolutionSizes sizes(the.engine(), input.shape, weights.shape, bias, window);
    return the.with(sizes.forward, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST});
  });
  Values output = the.output(convolution, convolution.arguments.size() - 1, shape);
  the.run(convolution, {&input, &weights, &bias, &output});
  return output;
}

Values Kernels::convolve_by_input(const Values& gradient, const Values& weights, const Shape& input,
                                  const Window& window) {
  Primitives& the = *primitives_;
  if (elements_of(input) == 0) return Values::make(the.pool(), input);
  const Key key = Key("the gradient of a convolution by its input")
                  << input << weights.shape << window;
  Primitive& convolution = the.prepared(key, {&gradient, &weights}, [&] {
    const ConvolutionSizes sizes(the.engine(), input, weights.shape, {}, window);
    const dnnl::convolution_backward_data::primitive_desc made(
        {kDirect, sizes.source, sizes.weights, sizes.result, sizes.moves.strides,
         sizes.moves.padding, sizes.moves.padding},
        the.engine(), sizes.forward);
    return the.with(made, {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC});
  });
  Values result = the.output(convolution, 2, input);
  the.run(convolution, {&gradient, &weights, &result});
  return result;
}

void Kernels::convolve_by_weights(const Values& input, const Values& gradient, Values& by_weights,
                                  Values& by_bias, const Window& window) {
  Primitives& the = *primitives_;
  if (has_no_elements(gradient)) return fill_zeros(by_weights), fill_zeros(by_bias);
  const Key key = Key("the gradient of a convolution by its weights")
                  << input.shape << by_weights.shape << by_bias.shape << window;
  Primitive& convolution = the.prepared(key, {&input, &gradient}, [&] {
    const ConvolutionSizes sizes(the.engine(), input.shape, by_weights.shape, by_bias, window);
    const dnnl::convolution_backward_weights::primitive_desc made(
        {kDirect, sizes.source, sizes.weights, sizes.bias, sizes.result, sizes.moves.strides,
         sizes.moves.padding, sizes.moves.padding},
        the.engine(), sizes.forward);
    return the.with(made,
                    {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS});
  });
  Values weights = the.output(convolution, 2, by_weights.shape);
  if (weights.layout == nullptr) weights = by_weights;
  the.run(convolution, {&input, &gradient, &weights, &by_bias});
  if (weights.layout != nullptr) the.copy(weights, by_weights);
}

namespace {

dnnl::algorithm algorithm_of(Pooling pooling) {
  return pooling == Pooling::kLargest ? dnnl::algorithm::pooling_max
                                      : dnnl::algorithm::pooling_avg_include_padding;
}

// Whether any is NaN, in a loop that compilers vectorise.
bool has_nan(std::span<const float> values) {
  std::uint32_t found = 0;
  for (const float value : values) found |= static_cast<std::uint32_t>(value != value);
  return found != 0;
}

}  // namespace

Pooled Kernels::pool(const Values& input, const Window& window, Pooling pooling, bool training) {
  Primitives& the = *primitives_;
  const Shape shape = windowed(input.shape, window, input.shape.at(1));
  if (has_no_elements(input)) return {Values::make(the.pool(), shape), {}};
  const Key key = Key("a pool") << input << window << static_cast<std::uint64_t>(pooling)
                                << std::uint64_t{training};
  Primitive& primitive = the.prepared(key, {&input}, [&] {
    const Moves moves(window);
    const dnnl::pooling_forward::primitive_desc made(
        {training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference,
         algorithm_of(pooling), desc_of(input), any_order(shape), moves.strides, moves.sides,
         moves.padding, moves.padding},
        the.engine());
    Primitive result = the.with(made, {DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WORKSPACE});
    result.workspace = std::make_shared<Layout>(made.workspace_desc(), made);
    return result;
  });
  Pooled pooled{the.output(primitive, 1, shape), {}};
  if (training && pooling == Pooling::kLargest) {
    pooled.places = the.in_layout(shape, primitive.workspace);
  } else if (training) {
    pooled.places.layout = primitive.workspace;
  }
  the.run(primitive, {&input, &pooled.output, &pooled.places});
  const std::span<const float> numbers(input.data(), floats_of(input));
  if (pooling == Pooling::kMean || input.is_free_of_nan || !has_nan(numbers)) return pooled;
  // oneDNN's comparison passes a NaN over, and its mean does not.
  const Values marks = the.in_layout(input.shape, input.layout);
  std::ranges::transform(numbers, marks.data(),
                         [](float value) { return std::isnan(value) ? value : 0.0F; });
  pooled.output = add(pooled.output, pool(marks, window, Pooling::kMean, false).output);
  return pooled;
}

Values Kernels::pool_backward(const Values& gradient, const Values& places, const Shape& input,
                              const Window& window, Pooling pooling) {
  Primitives& the = *primitives_;
  if (elements_of(input) == 0) return Values::make(the.pool(), input);
  const Key key = Key("the gradient of a pool") << gradient << places.layout;
  Primitive& primitive = the.prepared(key, {&gradient, &places}, [&] {
    const Moves moves(window);
    const dnnl::pooling_forward::primitive_desc& forward = places.layout->pool;
    const dnnl::pooling_backward::primitive_desc made(
        {algorithm_of(pooling), forward.src_desc(), forward.dst_desc(), moves.strides, moves.sides,
         moves.padding, moves.padding},
        the.engine(), forward);
    return the.with(made, {DNNL_ARG_DIFF_DST, DNNL_ARG_WORKSPACE, DNNL_ARG_DIFF_SRC});
  });
  Values result = the.output(primitive, primitive.arguments.size() - 1, input);
  the.run(primitive, {&gradient, &places, &result});
  return result;
}

// Loops of our own: they are bound by memory, and small ones are not worth a primitive. What a
// layout pads is computed too: it holds zeros, and stays so. NaN stays NaN.
Values Kernels::relu(const Values& input) {
  Values output = primitives_->in_layout(input.shape, input.layout);
  const float* const from = input.data();
  float* const to = output.data();
  std::uint32_t nans = 0;  // found on the way, for a pool that comes next
  for (std::size_t i = 0, count = floats_of(input); i < count; ++i) {
    const float value = from[i];
    to[i] = value < 0.0F ? 0.0F : value;
    nans |= static_cast<std::uint32_t>(value != value);
  }
  output.is_free_of_nan = nans == 0;
  return output;
}

Values Kernels::relu_backward(const Values& output, const Values& gradient) {
  const Values incoming =
      gradient.layout == output.layout ? gradient : primitives_->reordered(gradient, output.layout);
  Values result = primitives_->in_layout(output.shape, output.layout);
  const float* const from = incoming.data();
  const float* const passed = output.data();
  float* const to = result.data();
  for (std::size_t i = 0, count = floats_of(output); i < count; ++i) {
    const float value = from[i];  // read in any case, so that the compiler needs no branch
    to[i] = passed[i] <= 0.0F ? 0.0F : value;
  }
  return result;
}

namespace {

dnnl::normalization_flags flags_of(bool as_given) {
  using Flags = dnnl::normalization_flags;
  const Flags flags = Flags::use_scale | Flags::use_shift;
  return as_given ? flags | Flags::use_global_stats : flags;
}

dnnl::batch_normalization_forward::primitive_desc normalize_desc(const dnnl::engine& engine,
                                                                 const memory::desc& data,
                                                                 float epsilon, bool as_given) {
  const auto kind =
      as_given ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training;
  return {{kind, data, epsilon, flags_of(as_given)}, engine};
}

std::uint64_t bits_of(float number) { return std::bit_cast<std::uint32_t>(number); }

}  // namespace

Normalized Kernels::normalize(const Values& input, const Values& scale, const Values& shift,
                              float epsilon, const Values& mean, const Values& variance) {
  Primitives& the = *primitives_;
  const bool as_given = !mean.empty();
  Normalized result;
  result.mean = as_given ? mean : Values::make(the.pool(), {input.shape.at(1)});
  result.variance = as_given ? variance : Values::make(the.pool(), {input.shape.at(1)});
  result.output = the.in_layout(input.shape, input.layout);
  if (has_no_elements(input)) {
    if (!as_given) fill_zeros(result.mean), fill_zeros(result.variance);
    return result;
  }
  const Key key = Key("a normalisation") << input << bits_of(epsilon) << std::uint64_t{as_given};
  Primitive& normalization = the.prepared(key, {&input}, [&] {
    return the.with(normalize_desc(the.engine(), desc_of(input), epsilon, as_given),
                    {DNNL_ARG_SRC, DNNL_ARG_SCALE, DNNL_ARG_SHIFT, DNNL_ARG_MEAN, DNNL_ARG_VARIANCE,
                     DNNL_ARG_DST});
  });
  the.run(normalization, {&input, &scale, &shift, &result.mean, &result.variance, &result.output});
  return result;
}

Values Kernels::normalize_backward(const Values& input, const Values& gradient,
                                   const Normalized& forward, const Values& scale, float epsilon,
                                   Values& by_scale, Values& by_shift) {
  Primitives& the = *primitives_;
  Values result = the.in_layout(input.shape, input.layout);
  if (has_no_elements(input)) return fill_zeros(by_scale), fill_zeros(by_shift), result;
  const Key key = Key("the gradient of a normalisation") << input << bits_of(epsilon);
  Primitive& normalization = the.prepared(key, {&input}, [&] {
    const memory::desc data = desc_of(input);
    const dnnl::batch_normalization_backward::primitive_desc made(
        {dnnl::prop_kind::backward, data, data, epsilon, flags_of(false)}, the.engine(),
        normalize_desc(the.engine(), data, epsilon, false));
    return the.with(
        made, {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_MEAN, DNNL_ARG_VARIANCE, DNNL_ARG_SCALE,
               DNNL_ARG_SHIFT, DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT});
  });
  // It asks for the shift, which the gradients do not depend on: anything of its shape will do.
  const Values& shift = scale;
  the.run(normalization, {&input, &gradient, &forward.mean, &forward.variance, &scale, &shift,
                          &result, &by_scale, &by_shift});
  return result;
}

}  // namespace ronde::trainer
