// SPDX-License-Identifier: Apache-2.0
// Making, keeping and running primitives of oneDNN.
#include "bindings/trainer/tensor/primitives.h"

#include <limits>
#include <memory>
#include <string>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

using dnnl::memory;

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

memory::desc desc_of(const Values& values) {
  return values.layout == nullptr ? row_major(dims_of(values.shape)) : values.layout->desc;
}

std::size_t floats_of(const Values& values) {
  if (values.layout == nullptr) return values.size();
  return (values.layout->desc.get_size() + sizeof(float) - 1) / sizeof(float);
}

namespace {

std::string failed(const char* name, std::initializer_list<const Values*> about,
                   const dnnl::error& error) {
  std::string text = std::string("oneDNN cannot compute ") + name + " from";
  const char* between = " ";
  for (const Values* const values : about) {
    text += std::exchange(between, ", ") + text_of(values->shape);
  }
  return text + ": " + error.what() + ": use other sizes, or report this with them";
}

bool lies_as(const Values& values, const LayoutPointer& layout) {
  if (values.layout == layout) return true;
  return values.layout != nullptr && layout != nullptr && values.layout->desc == layout->desc;
}

// Handing memory to oneDNN costs about a tenth of a microsecond, and writes zeros where the layout
// pads. From step to step the pool gives the same memory, which has been written by a primitive.
void place(Primitive::Argument& argument, float* data) {
  if (argument.data == data) return;
  argument.place.set_data_handle(data);
  argument.data = data;
}

}  // namespace

Primitives::Primitives(MemoryPool& pool, int threads)
    : pool_(pool), threads_(threads), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

void Primitives::begin_pass() {
  constexpr std::size_t kKept = 256;
  ++pass_;
  if (prepared_.size() <= kKept) return;
  std::vector<std::uint64_t> passes;
  passes.reserve(prepared_.size());
  for (const auto& [key, one] : prepared_) passes.push_back(one.pass);
  const auto newest = passes.end() - kKept;
  std::ranges::nth_element(passes, newest);
  std::erase_if(prepared_, [this, oldest = *newest](const auto& entry) {
    return entry.second.pass < oldest && entry.second.pass + 2 < pass_;
  });
  std::erase_if(layouts_, [](const LayoutPointer& layout) { return layout.use_count() == 1; });
}

Primitive& Primitives::keep(const PrimitiveKey& key, std::initializer_list<const Values*> about,
                            const std::function<Primitive()>& make) {
  try {
    const Working working(threads_);
    Primitive made = make();
    made.name = key.name();
    made.pass = pass_;
    for (const Values* const values : about) made.about.push_back(values->layout);
    return prepared_.emplace(key, std::move(made)).first->second;
  } catch (const dnnl::error& error) {
    throw TrainerError(failed(key.name(), about, error));
  }
}

Primitive Primitives::with(const dnnl::primitive_desc_base& made,
                           std::initializer_list<int> arguments) {
  Primitive result{"", dnnl::primitive(made.get()), {}, {}, {}, {}};
  for (const int name : arguments) {
    const memory::desc desc = made.query_md(dnnl::query::exec_arg_md, name);
    if (desc.is_zero()) continue;
    const memory place(desc, engine_, DNNL_MEMORY_NONE);
    result.passed.push_back({name, place.get()});
    result.arguments.push_back({layout_of(desc), place});
  }
  return result;
}

Values Primitives::output(const Primitive& primitive, std::size_t argument, const Shape& shape) {
  return in_layout(shape, primitive.arguments.at(argument).layout);
}

Values Primitives::in_layout(const Shape& shape, const LayoutPointer& layout) {
  Values values;
  values.shape = shape;
  values.layout = layout;
  values.memory = pool_.take(floats_of(values));
  return values;
}

void Primitives::run(Primitive& primitive, std::initializer_list<const Values*> values) {
  constexpr std::size_t kMostArguments = 9;
  std::array<Values, kMostArguments> copies;
  std::size_t i = 0;
  try {
    for (const Values* const value : values) {
      if (value->empty()) continue;
      Primitive::Argument& argument = primitive.arguments.at(i);
      const Values* const here = lies_as(*value, argument.layout)
                                     ? value
                                     : &(copies.at(i) = reordered(*value, argument.layout));
      place(argument, here->data());
      ++i;
    }
    const Working working(threads_);
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(primitive.primitive.get(), stream_.get(),
                               static_cast<int>(primitive.passed.size()), primitive.passed.data()),
        "the primitive failed");
    stream_.wait();
  } catch (const dnnl::error& error) {
    throw TrainerError(failed(primitive.name, values, error));
  }
}

void Primitives::copy(const Values& from, const Values& to) {
  const PrimitiveKey key = PrimitiveKey("another layout") << from << to.layout;
  run(prepared(key, {&from, &to},
               [&] {
                 const dnnl::reorder::primitive_desc made(engine_, desc_of(from), engine_,
                                                          desc_of(to));
                 return with(made, {DNNL_ARG_FROM, DNNL_ARG_TO});
               }),
      {&from, &to});
}

Values Primitives::reordered(const Values& values, const LayoutPointer& layout) {
  Values to = in_layout(values.shape, layout);
  copy(values, to);
  return to;
}

// The one layout with this descriptor; null: row-major.
LayoutPointer Primitives::layout_of(const memory::desc& desc) {
  if (desc == row_major(desc.dims())) return nullptr;
  for (const LayoutPointer& known : layouts_) {
    if (known->desc == desc) return known;
  }
  return layouts_.emplace_back(std::make_shared<Layout>(desc));
}

}  // namespace ronde::trainer
