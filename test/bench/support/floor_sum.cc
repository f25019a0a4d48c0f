// SPDX-License-Identifier: Apache-2.0
// Compiled for the processor that builds it, alone (see CMakeLists.txt): the floor runs where it is
// built, and shares no code with the kernels that it is a yardstick for.
#include "test/bench/support/floor_sum.h"

#include <cstddef>
#include <cstring>

namespace ronde::bench {

namespace {

constexpr std::int64_t kLanes = 16;
using Vector [[gnu::vector_size(64), gnu::aligned(4), gnu::may_alias]] = float;

Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
void store(float* to, Vector vector) { *reinterpret_cast<Vector*>(to) = vector; }

// Elements. A prefetch may reach beyond the end: it never faults.
constexpr std::int64_t kReadAhead = 1024;
constexpr std::int64_t kWriteAhead = 512;
// A shorter copy is over before what it asks for is there.
constexpr std::int64_t kLeastToAskAhead = 4096;

template <std::size_t Count>
void over_all(float* const* vectors, std::int64_t elements, const float* own) {
  float* at[Count];
  for (std::size_t r = 0; r < Count; ++r) at[r] = vectors[r];
  std::int64_t i = 0;
  for (; i + kLanes <= elements; i += kLanes) {
    __builtin_prefetch(own + i + kReadAhead, 0, 2);
    Vector sum = load(at[0] + i);
    for (std::size_t r = 1; r < Count; ++r) sum += load(at[r] + i);
    for (std::size_t r = 0; r < Count; ++r) store(at[r] + i, sum);
  }
  for (; i < elements; ++i) {
    float sum = at[0][i];
    for (std::size_t r = 1; r < Count; ++r) sum += at[r][i];
    for (std::size_t r = 0; r < Count; ++r) at[r][i] = sum;
  }
}

template <std::size_t Count>
void into(float* result, const float* const* vectors, std::int64_t elements) {
  const float* at[Count];
  for (std::size_t r = 0; r < Count; ++r) at[r] = vectors[r];
  std::int64_t i = 0;
  for (; i + kLanes <= elements; i += kLanes) {
    Vector sum = load(at[0] + i);
    for (std::size_t r = 1; r < Count; ++r) sum += load(at[r] + i);
    store(result + i, sum);
  }
  for (; i < elements; ++i) {
    float sum = at[0][i];
    for (std::size_t r = 1; r < Count; ++r) sum += at[r][i];
    result[i] = sum;
  }
}

using OverAll = void (*)(float* const*, std::int64_t, const float*);
using Into = void (*)(float*, const float* const*, std::int64_t);
constexpr OverAll kOverAll[kMostFloorRanks + 1] = {nullptr,     over_all<1>, over_all<2>,
                                                   over_all<3>, over_all<4>, over_all<5>,
                                                   over_all<6>, over_all<7>, over_all<8>};
constexpr Into kInto[kMostFloorRanks + 1] = {nullptr, into<1>, into<2>, into<3>, into<4>,
                                             into<5>, into<6>, into<7>, into<8>};

}  // namespace

void sum_over_all(float* const* vectors, int count, std::int64_t elements, const float* own) {
  kOverAll[count](vectors, elements, own);
}

void sum_into(float* result, const float* const* vectors, int count, std::int64_t elements) {
  kInto[count](result, vectors, elements);
}

void copy(float* to, const float* from, std::int64_t elements) {
  if (elements < kLeastToAskAhead) {
    std::memcpy(to, from, static_cast<std::size_t>(elements) * sizeof(float));
    return;
  }
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= elements; i += 2 * kLanes) {
    __builtin_prefetch(from + i + kReadAhead, 0, 2);
    __builtin_prefetch(from + i + kReadAhead + kLanes, 0, 2);
    if (i + kWriteAhead < elements) {
      __builtin_prefetch(to + i + kWriteAhead, 1, 3);
      __builtin_prefetch(to + i + kWriteAhead + kLanes, 1, 3);
    }
    const Vector a = load(from + i);
    const Vector b = load(from + i + kLanes);
    store(to + i, a);
    store(to + i + kLanes, b);
  }
  for (; i < elements; ++i) to[i] = from[i];
}

}  // namespace ronde::bench
