// SPDX-License-Identifier: Apache-2.0
// What operations are given, and how spans become requests of the C ABI. Included by ronde.hpp.
#pragma once

#include <ronde/ronde.h>

#include <cstddef>
#include <cstdint>
#include <ronde/dtype.hpp>
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

// One tensor of a group on a device.
// Thread safety: a value.
template <typename T>
struct NamedDeviceSpan {
  std::string name;
  DeviceSpan<T> data;
};

namespace detail {

template <typename T>
void set_device(ronde_request& request, const DeviceSpan<T>& where) {
  request.device = where.device;
  request.stream = where.stream;
  request.ready_event = where.ready_event;
}

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
}

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
  template <typename T, std::size_t N>
  Vector(const std::string& name, std::span<T, N> data, const std::source_location& where)
      : request(named(name, where)), length(static_cast<std::int64_t>(data.size())) {
    request.shape = &length;
    request.dimensions = 1;
    request.dtype = detail::dtype_of<std::remove_const_t<T>>();
    if constexpr (std::is_const_v<T>) {
      request.input = data.data();
    } else {
      request.output = data.data();
    }
  }
  template <typename T>
  Vector(const std::string& name, const DeviceSpan<T>& data, const std::source_location& where)
      : Vector(name, data.data, where) {
    set_device(request, data);
  }
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
  template <typename T>
  Group(const std::vector<NamedSpan<T>>& tensors, const std::source_location& where)
      : lengths(tensors.size()) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      lengths[i] = static_cast<std::int64_t>(tensors[i].data.size());
      ronde_request request = named(tensors[i].name, where);
      request.output = tensors[i].data.data();
      request.shape = &lengths[i];
      request.dimensions = 1;
      request.dtype = detail::dtype_of<T>();
      requests.push_back(request);
    }
  }
  template <typename T>
  Group(const std::vector<NamedDeviceSpan<T>>& tensors, const std::source_location& where)
      : Group(spans_of(tensors), where) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      requests[i].name = tensors[i].name.c_str();
      set_device(requests[i], tensors[i].data);
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

 private:
  template <typename T>
  static std::vector<NamedSpan<T>> spans_of(const std::vector<NamedDeviceSpan<T>>& tensors) {
    std::vector<NamedSpan<T>> spans;
    for (const auto& tensor : tensors) spans.push_back({"", tensor.data.data});
    return spans;
  }
};

}  // namespace detail
}  // namespace ronde
