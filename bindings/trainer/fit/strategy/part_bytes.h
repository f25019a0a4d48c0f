// SPDX-License-Identifier: Apache-2.0
// A part of a batch as bytes, as a chief sends it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "bindings/trainer/data/batch.h"
#include "bindings/trainer/data/source.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

[[noreturn]] inline void refuse_part() {
  throw TrainerError(
      "the chief has sent samples of another format than this process's data set "
      "has: give distribute_from_chief() the same format everywhere");
}

template <typename T>
void append_bytes(std::vector<char>& bytes, std::span<const T> values) {
  const auto raw = std::as_bytes(values);
  const auto* const first = reinterpret_cast<const char*>(raw.data());
  bytes.insert(bytes.end(), first, first + raw.size());
}

template <typename T>
void take_bytes(std::span<const char>& bytes, std::vector<T>& values, std::size_t count) {
  if (bytes.size() / sizeof(T) < count) refuse_part();
  values.resize(count);
  if (count != 0) std::memcpy(values.data(), bytes.data(), count * sizeof(T));
  bytes = bytes.subspan(count * sizeof(T));
}

// The sizes of what follows, and all that a batch has.
inline void append_part(std::vector<char>& bytes, const Batch& part) {
  std::vector<std::uint64_t> head{part.shape.size(), part.inputs.size(), part.labels.size(),
                                  part.targets.size(), part.size()};
  head.insert(head.end(), part.shape.begin(), part.shape.end());
  append_bytes<std::uint64_t>(bytes, head);
  append_bytes<float>(bytes, part.inputs);
  append_bytes<std::int32_t>(bytes, part.labels);
  append_bytes<float>(bytes, part.targets);
  append_bytes<std::uint32_t>(bytes, part.samples);
  append_bytes<std::uint32_t>(bytes, part.repetitions);
}

// Throws TrainerError for what is no part.
inline void take_part(std::span<const char>& bytes, Batch& part) {
  std::vector<std::uint64_t> head;
  std::vector<std::uint64_t> shape;
  take_bytes(bytes, head, 5);
  take_bytes(bytes, shape, head[0]);
  part.shape.assign(shape.begin(), shape.end());
  take_bytes(bytes, part.inputs, head[1]);
  take_bytes(bytes, part.labels, head[2]);
  take_bytes(bytes, part.targets, head[3]);
  take_bytes(bytes, part.samples, head[4]);
  take_bytes(bytes, part.repetitions, head[4]);
}

[[nodiscard]] inline bool fits(const SampleFormat& format, const Batch& part) {
  Shape shape = format.shape;
  shape.insert(shape.begin(), part.size());
  return (part.shape == shape || part.size() == 0) &&
         part.inputs.size() == (part.size() == 0 ? 0 : elements_of(shape)) &&
         part.labels.size() == (format.classes == 0 ? 0 : part.size()) &&
         part.targets.size() == part.size() * format.targets;
}

}  // namespace ronde::trainer
