// SPDX-License-Identifier: Apache-2.0
// The computations by oneDNN (version 2). This file is long because it is the only one that knows
// oneDNN: another version or another library changes this file alone.
#include "bindings/trainer/tensor/kernels.h"

#include <dnnl.hpp>

#include <algorithm>
#include <bit>
#include <csignal>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/trainer/tensor/errors.h"

// OpenMP's run-time library has this function, which says how many threads oneDNN takes. It is
// declared here because only some compilers bring the header, and clang-tidy does not.
extern "C" void omp_set_num_threads(int threads);

namespace ronde::trainer {

// An order of elements. Two tensors of equal shape with equal descriptors lie alike.
class Layout {
 public:
  explicit Layout(const dnnl::memory::desc& own, dnnl::pooling_forward::primitive_desc by = {})
      : desc(own), pool(std::move(by)) {}

  dnnl::memory::desc desc;
  // The workspace of a max-pool knows the pool that wrote it, which its backward pass asks for.
  dnnl::pooling_forward::primitive_desc pool;
};

namespace {

using dnnl::memory;
using Tag = memory::format_tag;

memory::dim dim(std::size_t side) {
  if (side > std::size_t{std::numeric_limits<std::int64_t>::max()}) {
    throw TrainerError("a side of " + std::to_string(side) + " is too long: make it smaller");
  }
  return static_cast<memory::dim>(side);
}

memory::dims dims_of(const Shape& shape) {
  memory::dims dims;
  for (const std::size_t side : shape) dims.push_back(dim(side));
  if (dims.empty()) dims.push_back(1);
  return dims;
}

memory::dims dims_of(const std::array<std::size_t, 2>& pair) {
  return {dim(pair[0]), dim(pair[1])};
}

memory::desc row_major(const memory::dims& dims) {
  memory::dims strides(dims.size(), 1);
  for (std::size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
  return {dims, memory::data_type::f32, strides};
}

memory::desc row_major(const Shape& shape) { return row_major(dims_of(shape)); }

memory::desc any_order(const Shape& shape) {
  return {dims_of(shape), memory::data_type::f32, Tag::any};
}

memory::desc desc_of(const Values& values) {
  return values.layout == nullptr ? row_major(values.shape) : values.layout->desc;
}

// Describes `dims` in the order of channels that `like` has; row-major where that order is none of
// the usual ones, since a primitive takes those alone.
memory::desc in_order_of(const memory::desc& like, const memory::dims& dims) {
  for (const Tag tag : {Tag::aBcd16b, Tag::aBcd8b, Tag::aBcd4b, Tag::acdb}) {
    if (memory::desc(like.dims(), memory::data_type::f32, tag) == like) {
      return {dims, memory::data_type::f32, tag};
    }
  }
  return row_major(dims);
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

// How many floats the memory holds, with what the layout pads.
std::size_t floats_of(const Values& values) {
  if (values.layout == nullptr) return values.size();
  return (values.layout->desc.get_size() + sizeof(float) - 1) / sizeof(float);
}

// As those of a batch without samples; they have memory all the same, so are not empty().
bool has_no_elements(const Values& values) { return elements_of(values.shape) == 0; }

void fill_zeros(const Values& values) {
  if (!values.empty()) std::ranges::fill(values.plain(), 0.0F);
}

std::uint64_t bits_of(float number) { return std::bit_cast<std::uint32_t>(number); }

// What a primitive is made for. Kept in place, so that to look one up takes no memory.
class Key {
 public:
  // `name` is a literal, for messages; its address tells one operation from another.
  explicit Key(const char* name) : name_(name) { *this << reinterpret_cast<std::uint64_t>(name); }
  Key& operator<<(std::uint64_t number) {
    numbers_.at(count_++) = number;
    return *this;
  }
  Key& operator<<(const Values& values) { return *this << values.shape << values.layout; }
  Key& operator<<(const Shape& shape) {
    *this << std::uint64_t{shape.size()};
    for (const std::size_t side : shape) *this << std::uint64_t{side};
    return *this;
  }
  Key& operator<<(const Window& window) {
    for (const auto& [height, width] : {window.side, window.stride, window.padding}) {
      *this << std::uint64_t{height} << std::uint64_t{width};
    }
    return *this;
  }
  Key& operator<<(const LayoutPointer& layout) {
    return *this << reinterpret_cast<std::uint64_t>(layout.get());
  }

  [[nodiscard]] const char* name() const { return name_; }
  bool operator==(const Key& other) const {
    return count_ == other.count_ &&
           std::equal(numbers_.data(), numbers_.data() + count_, other.numbers_.data());
  }
  struct Hash {
    std::size_t operator()(const Key& key) const {
      std::uint64_t hash = 0;
      for (std::size_t i = 0; i < key.count_; ++i) {
        hash = (hash ^ key.numbers_[i]) * 0x9E3779B97F4A7C15U;
        hash ^= hash >> 29;
      }
      return hash;
    }
  };

 private:
  const char* name_;
  std::array<std::uint64_t, 24> numbers_{};
  std::size_t count_ = 0;
};

struct Argument {
  LayoutPointer layout;  // null: row-major
  memory place;          // over `data`
  float* data = nullptr;
};

// oneDNN's generated code uses the stack pointer for data, into which a signal's frame would fall.
// While it runs no signal comes to this thread, nor ever to those that oneDNN starts meanwhile.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

// A primitive with places for its arguments, which a call fills.
struct Prepared {
  const char* name;
  dnnl::primitive primitive;
  std::vector<Argument> arguments;
  std::vector<dnnl_exec_arg_t> passed;
};

// An argument as a primitive's descriptor states it.
struct Described {
  int name;  // DNNL_ARG_...
  memory::desc desc;
};

}  // namespace

class Kernels::Implementation {
 public:
  Implementation(MemoryPool& pool, int threads)
      : pool_(pool), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    omp_set_num_threads(threads);
  }

  [[nodiscard]] MemoryPool& pool() const { return pool_; }
  [[nodiscard]] const dnnl::engine& engine() const { return engine_; }

  // The primitive for this key, which `make` makes the first time; `about` is what it computes on.
  template <typename Make>
  Prepared& prepared(const Key& key, std::initializer_list<const Values*> about, Make make) {
    const auto known = prepared_.find(key);
    if (known != prepared_.end()) return known->second;
    // The key holds addresses of layouts: they must not become those of others.
    for (const Values* const values : about) layouts_.push_back(values->layout);
    try {
      Prepared& made = prepared_.emplace(key, make()).first->second;
      made.name = key.name();
      return made;
    } catch (const dnnl::error& error) {
      throw TrainerError(failed(key.name(), about, error));
    }
  }

  [[nodiscard]] Prepared with(dnnl::primitive primitive, std::initializer_list<Described> all) {
    Prepared made{"", std::move(primitive), {}, {}};
    for (const Described& one : all) {
      if (one.desc.is_zero()) continue;  // no bias
      memory place(one.desc, engine_, DNNL_MEMORY_NONE);
      made.passed.push_back({one.name, place.get()});
      made.arguments.push_back({layout_of(one.desc), place});
    }
    return made;
  }

  // Memory for an argument that the primitive writes.
  [[nodiscard]] Values output(const Prepared& prepared, std::size_t argument, const Shape& shape) {
    return in_layout(shape, prepared.arguments.at(argument).layout);
  }
  [[nodiscard]] Values in_layout(const Shape& shape, const LayoutPointer& layout) {
    Values values;
    values.shape = shape;
    values.layout = layout;
    values.memory = pool_.take(floats_of(values));
    return values;
  }

  // Computes with the arguments in the order of with(), without those that are empty; an argument
  // in another layout than the primitive's is copied, so those it writes must be in the right one.
  void run(Prepared& prepared, std::initializer_list<const Values*> values) {
    std::array<Values, kMaxArguments> copies;
    std::size_t i = 0;
    try {
      for (const Values* const value : values) {
        if (value->empty()) continue;
        Argument& argument = prepared.arguments.at(i);
        const Values* const here = lies_as(*value, argument.layout)
                                       ? value
                                       : &(copies.at(i) = reordered(*value, argument.layout));
        place(argument, here->data());
        ++i;
      }
      const WithoutSignals guard;
      dnnl::error::wrap_c_api(
          dnnl_primitive_execute(prepared.primitive.get(), stream_.get(),
                                 static_cast<int>(prepared.passed.size()), prepared.passed.data()),
          "the primitive failed");
      stream_.wait();
    } catch (const dnnl::error& error) {
      throw TrainerError(failed(prepared.name, values, error));
    }
  }

  [[nodiscard]] Values reordered(const Values& values, const LayoutPointer& layout) {
    Values to = in_layout(values.shape, layout);
    copy(values, to);
    return to;
  }

  // Copies numbers between layouts.
  void copy(const Values& from, const Values& to) {
    Prepared& reorder = prepared(Key("another layout") << from << to.layout, {&from, &to}, [&] {
      const memory::desc source = desc_of(from);
      const memory::desc target = desc_of(to);
      const dnnl::reorder::primitive_desc made(engine_, source, engine_, target);
      Prepared result = with(dnnl::reorder(made), {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}});
      result.arguments[0].layout = from.layout;
      result.arguments[1].layout = to.layout;
      return result;
    });
    run(reorder, {&from, &to});
  }

  // c = a * b, with `b` transposed as it lies in memory.
  void multiply_transposed(const Values& a, const Values& b, const Values& c) {
    Prepared& product = prepared(Key("a product") << a.shape << b.shape, {&a, &b}, [&] {
      const memory::desc right({dim(b.shape[1]), dim(b.shape[0])}, memory::data_type::f32, Tag::ba);
      const dnnl::matmul::primitive_desc made({row_major(a.shape), right, row_major(c.shape)},
                                              engine_);
      Prepared result = with(dnnl::matmul(made), {{DNNL_ARG_SRC, made.src_desc()},
                                                  {DNNL_ARG_WEIGHTS, right},
                                                  {DNNL_ARG_DST, made.dst_desc()}});
      result.arguments[1].layout = nullptr;  // it is our row-major order, with the sides swapped
      return result;
    });
    run(product, {&a, &b, &c});
  }

  // With the places of the largest numbers, if they are wanted.
  Pooled pool(const Values& input, const Window& window, dnnl::algorithm algorithm, bool places) {
    const Shape shape = windowed(input.shape, window, input.shape.at(1));
    if (has_no_elements(input)) return {Values::make(pool_, shape), Values::make(pool_, shape)};
    const Key key = Key("a pool") << input << window << static_cast<std::uint64_t>(algorithm)
                                  << std::uint64_t{places};
    Prepared& pooling = prepared(key, {&input}, [&] {
      const Moves moves(window);
      const dnnl::pooling_forward::primitive_desc made(
          {places ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference,
           algorithm, desc_of(input), any_order(shape), moves.strides, moves.sides, moves.padding,
           moves.padding},
          engine_);
      Prepared result =
          with(dnnl::pooling_forward(made),
               {{DNNL_ARG_SRC, made.src_desc()},
                {DNNL_ARG_DST, made.dst_desc()},
                {DNNL_ARG_WORKSPACE, places ? made.workspace_desc() : memory::desc()}});
      if (places)
        result.arguments[2].layout = std::make_shared<Layout>(made.workspace_desc(), made);
      return result;
    });
    Pooled pooled{output(pooling, 1, shape), {}};
    if (places) pooled.places = output(pooling, 2, shape);
    run(pooling, {&input, &pooled.output, &pooled.places});
    return pooled;
  }

  Values pool_backward(const Values& gradient, const Values& places, const Shape& input,
                       const Window& window, dnnl::algorithm algorithm) {
    if (elements_of(input) == 0) return Values::make(pool_, input);
    const Key key = Key("the gradient of a pool") << gradient << places.layout << input << window
                                                  << static_cast<std::uint64_t>(algorithm);
    Prepared& pooling = prepared(key, {&gradient, &places}, [&] {
      const Moves moves(window);
      const dnnl::pooling_forward::primitive_desc forward =
          places.layout != nullptr
              ? places.layout->pool
              : dnnl::pooling_forward::primitive_desc(
                    {dnnl::prop_kind::forward_training, algorithm,
                     in_order_of(desc_of(gradient), dims_of(input)), any_order(gradient.shape),
                     moves.strides, moves.sides, moves.padding, moves.padding},
                    engine_);
      const dnnl::pooling_backward::primitive_desc made(
          {algorithm, forward.src_desc(), forward.dst_desc(), moves.strides, moves.sides,
           moves.padding, moves.padding},
          engine_, forward);
      Prepared result =
          with(dnnl::pooling_backward(made), {{DNNL_ARG_DIFF_DST, made.diff_dst_desc()},
                                              {DNNL_ARG_WORKSPACE, made.workspace_desc()},
                                              {DNNL_ARG_DIFF_SRC, made.diff_src_desc()}});
      if (places.layout != nullptr) result.arguments[1].layout = places.layout;
      return result;
    });
    Values result = output(pooling, pooling.arguments.size() - 1, input);
    run(pooling, {&gradient, &places, &result});
    return result;
  }

 private:
  static constexpr std::size_t kMaxArguments = 9;

  static std::string failed(const char* name, std::initializer_list<const Values*> about,
                            const dnnl::error& error) {
    std::string text = std::string("oneDNN cannot compute ") + name + " from";
    const char* between = " ";
    for (const Values* const values : about) {
      text += std::exchange(between, ", ") + text_of(values->shape);
    }
    return text + ": " + error.what() + ": use other sizes, or report this with them";
  }

  static bool lies_as(const Values& values, const LayoutPointer& layout) {
    if (values.layout == layout) return true;
    return values.layout != nullptr && layout != nullptr && values.layout->desc == layout->desc;
  }

  // The one layout with this descriptor; null: row-major.
  LayoutPointer layout_of(const memory::desc& desc) {
    if (desc == row_major(desc.dims())) return nullptr;
    for (const LayoutPointer& known : layouts_) {
      if (known != nullptr && known->desc == desc) return known;
    }
    return layouts_.emplace_back(std::make_shared<Layout>(desc));
  }

  // Handing memory to oneDNN costs about a tenth of a microsecond, and writes zeros where the
  // layout pads. From step to step the pool gives the same memory, which has been written by a
  // primitive.
  static void place(Argument& argument, float* data) {
    if (argument.data == data) return;
    argument.place.set_data_handle(data);
    argument.data = data;
  }

  MemoryPool& pool_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::unordered_map<Key, Prepared, Key::Hash> prepared_;
  std::vector<LayoutPointer> layouts_;
};

Kernels::Kernels(MemoryPool& pool, int threads) {
  try {
    implementation_ = std::make_unique<Implementation>(pool, threads);
  } catch (const dnnl::error& error) {
    throw TrainerError(std::string("oneDNN does not start: ") + error.what());
  }
}

Kernels::~Kernels() = default;

Values Kernels::plain(const Values& values) {
  if (values.layout == nullptr) return values;
  return implementation_->reordered(values, nullptr);
}

Values Kernels::add(const Values& a, const Values& b) {
  const Values other = a.layout == b.layout ? b : implementation_->reordered(b, a.layout);
  Values result = implementation_->in_layout(a.shape, a.layout);
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

}  // namespace

void Kernels::multiply(const Values& a, bool transpose_a, const Values& b, bool transpose_b,
                       Values& c, bool add) {
  if (has_no_elements(c)) return;
  if (has_no_elements(a)) return add ? void() : fill_zeros(c);
  if (!add && !transpose_a && transpose_b && is_slow_transposed(a, b)) {
    return implementation_->multiply_transposed(a, b, c);
  }
  const std::size_t terms = a.shape.at(transpose_a ? 0 : 1);
  const WithoutSignals guard;
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
        bias(with_bias.empty() ? memory::desc() : row_major(with_bias.shape)),
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
  Implementation& the = *implementation_;
  const Shape shape = windowed(input.shape, window, weights.shape.at(0));
  if (has_no_elements(input)) return Values::make(the.pool(), shape);
  const Key key = Key("a convolution") << input.shape << weights.shape << bias.shape << window;
  Prepared& convolution = the.prepared(key, {&input, &weights}, [&] {
    const ConvolutionSizes sizes(the.engine(), input.shape, weights.shape, bias, window);
    const auto& made = sizes.forward;
    return the.with(dnnl::convolution_forward(made), {{DNNL_ARG_SRC, made.src_desc()},
                                                      {DNNL_ARG_WEIGHTS, made.weights_desc()},
                                                      {DNNL_ARG_BIAS, sizes.bias},
                                                      {DNNL_ARG_DST, made.dst_desc()}});
  });
  Values output = the.output(convolution, convolution.arguments.size() - 1, shape);
  the.run(convolution, {&input, &weights, &bias, &output});
  return output;
}

Values Kernels::convolve_by_input(const Values& gradient, const Values& weights, const Shape& input,
                                  const Window& window) {
  Implementation& the = *implementation_;
  if (elements_of(input) == 0) return Values::make(the.pool(), input);
  const Key key = Key("the gradient of a convolution by its input")
                  << input << weights.shape << window;
  Prepared& convolution = the.prepared(key, {&gradient, &weights}, [&] {
    const ConvolutionSizes sizes(the.engine(), input, weights.shape, {}, window);
    const dnnl::convolution_backward_data::primitive_desc made(
        {kDirect, sizes.source, sizes.weights, sizes.result, sizes.moves.strides,
         sizes.moves.padding, sizes.moves.padding},
        the.engine(), sizes.forward);
    return the.with(dnnl::convolution_backward_data(made),
                    {{DNNL_ARG_DIFF_DST, made.diff_dst_desc()},
                     {DNNL_ARG_WEIGHTS, made.weights_desc()},
                     {DNNL_ARG_DIFF_SRC, made.diff_src_desc()}});
  });
  Values result = the.output(convolution, 2, input);
  the.run(convolution, {&gradient, &weights, &result});
  return result;
}

void Kernels::convolve_by_weights(const Values& input, const Values& gradient, Values& by_weights,
                                  Values& by_bias, const Window& window) {
  Implementation& the = *implementation_;
  if (has_no_elements(gradient)) return fill_zeros(by_weights), fill_zeros(by_bias);
  const Key key = Key("the gradient of a convolution by its weights")
                  << input.shape << by_weights.shape << by_bias.shape << window;
  Prepared& convolution = the.prepared(key, {&input, &gradient}, [&] {
    const ConvolutionSizes sizes(the.engine(), input.shape, by_weights.shape, by_bias, window);
    const dnnl::convolution_backward_weights::primitive_desc made(
        {kDirect, sizes.source, sizes.weights, sizes.bias, sizes.result, sizes.moves.strides,
         sizes.moves.padding, sizes.moves.padding},
        the.engine(), sizes.forward);
    return the.with(dnnl::convolution_backward_weights(made),
                    {{DNNL_ARG_SRC, made.src_desc()},
                     {DNNL_ARG_DIFF_DST, made.diff_dst_desc()},
                     {DNNL_ARG_DIFF_WEIGHTS, made.diff_weights_desc()},
                     {DNNL_ARG_DIFF_BIAS, sizes.bias}});
  });
  Values weights = the.output(convolution, 2, by_weights.shape);
  if (weights.layout == nullptr) weights = by_weights;
  the.run(convolution, {&input, &gradient, &weights, &by_bias});
  if (weights.layout != nullptr) the.copy(weights, by_weights);
}

Pooled Kernels::max_pool(const Values& input, const Window& window, bool training) {
  return implementation_->pool(input, window, dnnl::algorithm::pooling_max, training);
}

Values Kernels::max_pool_backward(const Values& gradient, const Values& places, const Shape& input,
                                  const Window& window) {
  return implementation_->pool_backward(gradient, places, input, window,
                                        dnnl::algorithm::pooling_max);
}

Values Kernels::average_pool(const Values& input, const Window& window) {
  constexpr auto kMean = dnnl::algorithm::pooling_avg_exclude_padding;
  return implementation_->pool(input, window, kMean, false).output;
}

Values Kernels::average_pool_backward(const Values& gradient, const Shape& input,
                                      const Window& window) {
  constexpr auto kMean = dnnl::algorithm::pooling_avg_exclude_padding;
  return implementation_->pool_backward(gradient, {}, input, window, kMean);
}

// Loops of our own: they are bound by memory, and small ones are not worth a primitive. What a
// layout pads is computed too: it holds zeros, and stays so. NaN stays NaN.
Values Kernels::relu(const Values& input) {
  Values output = implementation_->in_layout(input.shape, input.layout);
  const float* const from = input.data();
  float* const to = output.data();
  for (std::size_t i = 0, count = floats_of(input); i < count; ++i) {
    to[i] = from[i] < 0.0F ? 0.0F : from[i];
  }
  return output;
}

Values Kernels::relu_backward(const Values& output, const Values& gradient) {
  const Values incoming = gradient.layout == output.layout
                              ? gradient
                              : implementation_->reordered(gradient, output.layout);
  Values result = implementation_->in_layout(output.shape, output.layout);
  const float* const from = incoming.data();
  const float* const passed = output.data();
  float* const to = result.data();
  for (std::size_t i = 0, count = floats_of(output); i < count; ++i) {
    const float value = from[i];  // read in any case, so that the compiler needs no branch
    to[i] = passed[i] > 0.0F ? value : 0.0F;
  }
  return result;
}

namespace {

dnnl::batch_normalization_forward::primitive_desc normalize_desc(const dnnl::engine& engine,
                                                                 const memory::desc& data,
                                                                 float epsilon, bool as_given) {
  auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  if (as_given) flags |= dnnl::normalization_flags::use_global_stats;
  const auto kind =
      as_given ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training;
  return {{kind, data, epsilon, flags}, engine};
}

}  // namespace

Normalized Kernels::normalize(const Values& input, const Values& scale, const Values& shift,
                              float epsilon, const Values& mean, const Values& variance) {
  Implementation& the = *implementation_;
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
  Prepared& normalization = the.prepared(key, {&input}, [&] {
    const auto made = normalize_desc(the.engine(), desc_of(input), epsilon, as_given);
    const memory::desc channel = row_major(scale.shape);
    return the.with(dnnl::batch_normalization_forward(made), {{DNNL_ARG_SRC, made.src_desc()},
                                                              {DNNL_ARG_SCALE, channel},
                                                              {DNNL_ARG_SHIFT, channel},
                                                              {DNNL_ARG_MEAN, channel},
                                                              {DNNL_ARG_VARIANCE, channel},
                                                              {DNNL_ARG_DST, made.dst_desc()}});
  });
  the.run(normalization, {&input, &scale, &shift, &result.mean, &result.variance, &result.output});
  return result;
}

Values Kernels::normalize_backward(const Values& input, const Values& gradient,
                                   const Normalized& forward, const Values& scale, float epsilon,
                                   Values& by_scale, Values& by_shift) {
  Implementation& the = *implementation_;
  Values result = the.in_layout(input.shape, input.layout);
  if (has_no_elements(input)) return fill_zeros(by_scale), fill_zeros(by_shift), result;
  const Key key = Key("the gradient of a normalisation") << input << bits_of(epsilon);
  Prepared& normalization = the.prepared(key, {&input}, [&] {
    const memory::desc data = desc_of(input);
    const memory::desc channel = row_major(scale.shape);
    const auto hint = normalize_desc(the.engine(), data, epsilon, false);
    const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
    const dnnl::batch_normalization_backward::primitive_desc made(
        {dnnl::prop_kind::backward, data, data, epsilon, flags}, the.engine(), hint);
    return the.with(dnnl::batch_normalization_backward(made), {{DNNL_ARG_SRC, data},
                                                               {DNNL_ARG_DIFF_DST, data},
                                                               {DNNL_ARG_MEAN, channel},
                                                               {DNNL_ARG_VARIANCE, channel},
                                                               {DNNL_ARG_SCALE, channel},
                                                               {DNNL_ARG_SHIFT, channel},
                                                               {DNNL_ARG_DIFF_SRC, data},
                                                               {DNNL_ARG_DIFF_SCALE, channel},
                                                               {DNNL_ARG_DIFF_SHIFT, channel}});
  });
  // It asks for the shift, which the gradients do not depend on: anything of its shape will do.
  const Values& shift = scale;
  the.run(normalization, {&input, &gradient, &forward.mean, &forward.variance, &scale, &shift,
                          &result, &by_scale, &by_shift});
  return result;
}

}  // namespace ronde::trainer
