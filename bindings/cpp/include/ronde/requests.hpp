// SPDX-License-Identifier: Apache-2.0
// What operations are given, and how spans become requests of the C ABI. Included by ronde.hpp.
#pragma once

#include <ronde/ronde.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <ronde/dtype.hpp>
#include <ronde/range.hpp>
#include <ronde/types.hpp>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace ronde {

// What may be asked of an allreduce; copied by the call.
// Thread safety: a value.
struct AllreduceOptions {
  double prescale = 1.0;                         // multiplies every contribution; floating types
  double postscale = 1.0;                        // multiplies the result; floating types
  int priority = 0;                              // higher goes into a batch first
  Compression compression = Compression::kNone;  // for float only
  // This thread submits some more, perhaps, and then calls wait(): the background thread is left
  // asleep, and until then this rank may keep the others waiting.
  bool will_wait = false;
  // An average by weights, sum of weight * x / sum of weight over all ranks, where every rank gives
  // one: this rank's, such as its number of samples (`weight` in ronde.h). It may change from step
  // to step.
  std::optional<double> weight{};
};

// What may be asked of a reduce-scatter; copied by the call.
// Thread safety: a value.
struct ReduceScatterOptions {
  double prescale = 1.0;  // the first four as in AllreduceOptions
  double postscale = 1.0;
  int priority = 0;
  Compression compression = Compression::kNone;
  std::vector<std::int64_t> splits;  // elements for each rank; empty: even shares
  bool will_wait = false;            // as in AllreduceOptions
  std::optional<double> weight{};    // likewise
};

// One tensor of a group. The elements stay the caller's.
// Thread safety: a value.
template <typename T>
struct NamedSpan {
  std::string name;
  std::span<T> data;
};

// Elements in the memory of a device that a plug-in serves ("devices" in ronde.h). The engine reads
// them after ready_event, or, without one, after all that was put into `stream`; both count as they
// are when the tensor is submitted, and may be destroyed then. The memory stays the caller's.
//
//   engine.allreduce("fc1/weight", ronde::DeviceSpan(gradient, 0, stream)).wait(stream);
//
// Thread safety: a value.
template <typename T>
struct DeviceSpan {
  // `elements` points to memory of device `on_device`. Throws nothing.
  explicit DeviceSpan(std::span<T> elements, int on_device = 0, void* written_in = nullptr,
                      void* ready = nullptr)
      : data(elements), device(on_device), stream(written_in), ready_event(ready) {}

  std::span<T> data;
  int device;         // its number: the one that this rank uses
  void* stream;       // cudaStream_t; nullptr is the default stream
  void* ready_event;  // cudaEvent_t, or nullptr

  // In elements.
  [[nodiscard]] std::size_t size() const { return data.size(); }
};

namespace detail {
template <typename R, typename Plain = std::remove_cvref_t<R>>
struct RangeOf {
  using Range = R;
};
template <typename R, typename T>
struct RangeOf<R, DeviceSpan<T>> {
  using Range = std::span<T>;
};
}  // namespace detail

// What operations that return a Work take: elements of host memory or of a device.
template <typename R>
concept TensorSpan = TensorRange<typename detail::RangeOf<R>::Range>;
// The same, into which results are written.
template <typename R>
concept OutputSpan = OutputRange<typename detail::RangeOf<R>::Range>;

// One tensor of a group on a device.
// Thread safety: a value.
template <typename T>
struct NamedDeviceSpan {
  std::string name;
  DeviceSpan<T> data;
};

namespace detail {

// Where a one-dimensional tensor lies, whatever the type of its elements; the memory is the
// caller's. Thread safety: a value.
struct Memory {
  template <typename T, std::size_t N>
  explicit Memory(std::span<T, N> elements)
      : data(const_cast<std::remove_const_t<T>*>(elements.data())),
        count(elements.size()),
        bytes(elements.size_bytes()),
        dtype(dtype_of<std::remove_const_t<T>>()),
        read_only(std::is_const_v<T>) {}
  template <typename T>
  explicit Memory(const DeviceSpan<T>& elements) : Memory(elements.data) {
    device = elements.device;
    stream = elements.stream;
    ready_event = elements.ready_event;
  }

  [[nodiscard]] bool on_device() const { return device != RONDE_DEVICE_CPU; }
  void set_device(ronde_request& request) const {
    request.device = device;
    request.stream = stream;
    request.ready_event = ready_event;
  }
  void describe(ronde_request& request, const std::int64_t& length) const {
    request.shape = &length;
    request.dimensions = 1;
    request.dtype = dtype;
    if (read_only) {
      request.input = data;
    } else {
      request.output = data;
    }
    set_device(request);
  }

  void* data;
  std::size_t count;
  std::size_t bytes;
  ronde_dtype dtype;
  bool read_only = false;
  std::int32_t device = RONDE_DEVICE_CPU;
  void* stream = nullptr;
  void* ready_event = nullptr;
};

inline ronde_request named(const std::string& name, const std::source_location& where) {
  ronde_request request;
  ronde_request_init(&request);
  request.name = name.c_str();
  request.file = where.file_name();
  request.line = static_cast<std::int32_t>(where.line());
  return request;
}

template <typename Options>
void set_reduction(ronde_request& request, Op op, const Options& options) {
  request.op = static_cast<std::int32_t>(op);
  request.prescale = options.prescale;
  request.postscale = options.postscale;
  request.priority = options.priority;
  request.compression = static_cast<std::int32_t>(options.compression);
  if (options.will_wait) request.flags |= RONDE_FLAG_WILL_WAIT;
  if (!options.weight) return;
  request.flags |= RONDE_FLAG_WEIGHTED;
  request.weight = *options.weight;
}

template <typename T>
DeviceSpan<T> span_of(const DeviceSpan<T>& data) {
  return data;
}
// Elements of one type, and no container of the host as the output of what lies on a device.
template <typename In, typename Out>
concept Fit = std::same_as<std::ranges::range_value_t<typename RangeOf<In>::Range>,
                           std::ranges::range_value_t<typename RangeOf<Out>::Range>> &&
              (TensorRange<In> || std::ranges::view<std::remove_cvref_t<Out>>);

template <typename T, std::size_t N>
std::span<const T> read_only(std::span<T, N> data) {
  return data;
}
template <typename T>
DeviceSpan<const T> read_only(const DeviceSpan<T>& data) {
  return DeviceSpan<const T>(data.data, data.device, data.stream, data.ready_event);
}

// The request for a one-dimensional tensor; not copied or moved, since it points into itself.
struct Vector {
  Vector(const std::string& name, const Memory& memory, const std::source_location& where)
      : request(named(name, where)), length(static_cast<std::int64_t>(memory.count)) {
    memory.describe(request, length);
  }
  template <typename Span>
  Vector(const std::string& name, const Span& data, const std::source_location& where)
      : Vector(name, Memory(data), where) {}
  Vector(const Vector&) = delete;
  Vector& operator=(const Vector&) = delete;

  template <typename Options>
  Vector& reduced(Op op, const Options& options) {
    set_reduction(request, op, options);
    return *this;
  }
  Vector& split(const std::vector<std::int64_t>& splits) {
    request.split_count = static_cast<std::int32_t>(splits.size());
    request.splits = splits.empty() ? nullptr : splits.data();
    return *this;
  }
  Vector& rooted(int root) {
    request.root = root;
    return *this;
  }

  ronde_request request;
  std::int64_t length;
};

// Refuses an output that does not fit before anything is written: spans know their lengths.
inline void require_same_length(std::size_t input, std::size_t output,
                                const std::string& subject = "input") {
  if (input == output) return;
  throw Error(RONDE_INVALID_ARGUMENT,
              subject + " has " + std::to_string(input) + " elements and output " +
                  std::to_string(output) + ": make them equal",
              "", -1);
}

// The requests of a group; not copied or moved, for the same reason.
struct Group {
  // `tensors` are NamedSpans or NamedDeviceSpans; results are written into their elements.
  template <typename Named>
  Group(const std::vector<Named>& tensors, const std::source_location& where)
      : lengths(tensors.size()) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Memory memory(tensors[i].data);
      static_assert(OutputSpan<decltype(tensors[i].data)>, "the tensors of a group are written");
      lengths[i] = static_cast<std::int64_t>(memory.count);
      requests.push_back(named(tensors[i].name, where));
      memory.describe(requests.back(), lengths[i]);
    }
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  Group& reduced(Op op, const AllreduceOptions& options) {
    for (ronde_request& request : requests) set_reduction(request, op, options);
    return *this;
  }
  Group& rooted(int root) {
    for (ronde_request& request : requests) request.root = root;
    return *this;
  }

  // No machine holds more tensors than the C ABI can count.
  [[nodiscard]] std::int32_t count() const { return static_cast<std::int32_t>(requests.size()); }

  std::vector<std::int64_t> lengths;
  std::vector<ronde_request> requests;
};

}  // namespace detail
}  // namespace ronde
