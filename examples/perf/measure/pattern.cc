// SPDX-License-Identifier: Apache-2.0
// How values are chosen, encoded and folded for each dtype and op.
#include "examples/perf/measure/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ronde::perf {

namespace {

constexpr std::uint64_t kStep = 1009;  // the offset from one iteration to the next

// The finaliser of splitmix64: neighbouring inputs give unrelated outputs.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

// Returns the largest n for which the dtype holds all whole numbers up to n.
std::uint64_t largest(const DType& dtype) {
  if (dtype.kind == Kind::kBool) return 1;
  if (dtype.size == 1) return 127;
  if (dtype.exponent_bits == 8) return 256;
  if (dtype.exponent_bits == 5) return 2048;
  return dtype.size == 2 ? 32767 : 1U << 20U;
}

std::uint64_t all_bits(const DType& dtype) {
  return dtype.kind == Kind::kBool ? 1 : ~std::uint64_t{0};
}

std::uint64_t value_of(const DType& dtype, const Op& op, std::uint64_t rank, std::uint64_t ranks,
                       std::uint64_t element) {
  const std::uint64_t random = mix(mix(rank) + element);
  // For each element some ranks contribute a value of their own and the rest a neutral one:
  // otherwise, with many ranks, the result of "or" would be all ones even if a rank were left out.
  const std::uint64_t turn = (rank + element) % ranks;
  const std::uint64_t number = random % (largest(dtype) + 1);
  const std::uint64_t bits = dtype.kind == Kind::kBool ? random % 2 : random;
  switch (op.reduction) {
    case Reduction::kSum:
    case Reduction::kAverage:
      return random % (std::max<std::uint64_t>(1, largest(dtype) / ranks) + 1);
    case Reduction::kProduct:
      return turn < 6 ? 1 + random % 2 : 1;  // 2^6 fits into every dtype
    case Reduction::kMin:
      return turn < 3 ? number : largest(dtype);
    case Reduction::kMax:
      return turn < 3 ? number : 0;
    case Reduction::kBitAnd:
      return turn < 3 ? bits : all_bits(dtype);
    case Reduction::kBitOr:
      return turn < 3 ? bits : 0;
    case Reduction::kBitXor:
      return bits;
    case Reduction::kNone:
      return number;
  }
  return 0;
}

std::uint64_t combine(Reduction reduction, std::uint64_t a, std::uint64_t b) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kAverage:
      return a + b;
    case Reduction::kProduct:
      return a * b;
    case Reduction::kMin:
      return std::min(a, b);
    case Reduction::kMax:
      return std::max(a, b);
    case Reduction::kBitAnd:
      return a & b;
    case Reduction::kBitOr:
      return a | b;
    case Reduction::kBitXor:
      return a ^ b;
    case Reduction::kNone:
      return a;
  }
  return a;
}

// Encodes a non-negative number in a 16-bit floating type, rounded to nearest even.
std::uint16_t encode16(double value, int exponent_bits) {
  if (value == 0.0) return 0;
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // in [0.5, 1)
  auto mantissa =
      static_cast<std::uint32_t>(std::nearbyint(std::ldexp(fraction, mantissa_bits + 1)));
  // With the hidden bit in place, a mantissa that rounds up to the next power carries by itself.
  mantissa += static_cast<std::uint32_t>(exponent - 2 + bias) << mantissa_bits;
  return static_cast<std::uint16_t>(mantissa);
}

double decode16(std::uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  if (exponent == (1 << exponent_bits) - 1) return std::nan("");
  const int hidden = exponent == 0 ? 0 : 1 << mantissa_bits;
  const double size = std::ldexp(hidden + mantissa, std::max(exponent, 1) - bias - mantissa_bits);
  return (bits & 0x8000U) != 0 ? -size : size;
}

template <typename T>
void put(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof(value));
}
template <typename T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// Encodes whole numbers by their low bytes, since integers wrap around.
void encode(const DType& dtype, std::uint64_t value, std::byte* to) {
  if (dtype.kind == Kind::kFloat) {
    const auto number = static_cast<double>(value);
    if (dtype.exponent_bits != 0) {
      put(encode16(number, dtype.exponent_bits), to);
    } else if (dtype.size == sizeof(float)) {
      put(static_cast<float>(number), to);
    } else {
      put(number, to);
    }
    return;
  }
  std::memcpy(to, &value, dtype.size);  // little-endian, as every machine that Ronde runs on
}

// Encodes an average as documented: one multiplication by a factor rounded to the type of the sum.
void encode_average(const DType& dtype, std::uint64_t sum, int ranks, std::byte* to) {
  if (dtype.kind != Kind::kFloat) {
    encode(dtype, sum / static_cast<std::uint64_t>(ranks), to);
    return;
  }
  const double factor = 1.0 / ranks;
  if (dtype.size == sizeof(double)) {
    put(static_cast<double>(sum) * factor, to);
    return;
  }
  const float average = static_cast<float>(sum) * static_cast<float>(factor);
  if (dtype.exponent_bits != 0) {
    put(encode16(static_cast<double>(average), dtype.exponent_bits), to);
  } else {
    put(average, to);
  }
}

double decode_float(const DType& dtype, const std::byte* from) {
  if (dtype.exponent_bits != 0) {
    return decode16(get<std::uint16_t>(from), dtype.exponent_bits);
  }
  if (dtype.size == sizeof(float)) return static_cast<double>(get<float>(from));
  return get<double>(from);
}

// An average may be rounded in more than one place (once for each host on the way).
double tolerance(const DType& dtype) {
  if (dtype.exponent_bits == 8) return std::ldexp(1.0, -6);
  if (dtype.exponent_bits == 5) return std::ldexp(1.0, -9);
  return dtype.size == sizeof(float) ? std::ldexp(1.0, -21) : std::ldexp(1.0, -50);
}

std::size_t shift_of(std::uint64_t iteration) {
  return static_cast<std::size_t>(iteration * kStep % Pattern::kPeriod);
}

}  // namespace

Pattern::Pattern(const DType& dtype, const Op& op, int ranks) : dtype_(&dtype), op_(&op) {
  const auto n = static_cast<std::uint64_t>(ranks);
  inputs_.assign(n, std::vector<std::byte>(kPeriod * dtype.size));
  reduced_.resize(kPeriod * dtype.size);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    std::uint64_t result = 0;
    for (std::uint64_t rank = 0; rank < n; ++rank) {
      const std::uint64_t value = value_of(dtype, op, rank, n, i);
      encode(dtype, value, inputs_[rank].data() + i * dtype.size);
      result = rank == 0 ? value : combine(op.reduction, result, value);
    }
    std::byte* const to = reduced_.data() + i * dtype.size;
    if (op.reduction == Reduction::kAverage) {
      encode_average(dtype, result, ranks, to);
    } else {
      encode(dtype, result, to);
    }
  }
}

Run Pattern::input(const Case& shape, std::uint64_t iteration) const {
  return {&inputs_[static_cast<std::size_t>(shape.rank)], shift_of(iteration),
          shape.input_elements()};
}

std::vector<Run> Pattern::expected(const Case& shape, std::uint64_t iteration) const {
  const std::size_t shift = shift_of(iteration);
  const std::size_t own = static_cast<std::size_t>(shape.rank) * shape.count;
  if (shape.moves_nothing()) return {};
  // A rank that is given a block gets its own from each, or of the sum.
  const std::size_t from = shift + (shape.row().input == RONDE_BLOCKS ? own : 0);
  if (shape.row().reduces != 0) return {{&reduced_, from, shape.count}};
  if (shape.row().has_root != 0) {
    return {{&inputs_[static_cast<std::size_t>(shape.root)], from, shape.count}};
  }
  std::vector<Run> runs;
  runs.reserve(inputs_.size());
  for (const auto& input : inputs_) runs.push_back({&input, from, shape.count});
  return runs;
}

void Pattern::write(const Run& run, std::span<std::byte> memory) const {
  const std::size_t size = dtype_->size;
  std::size_t position = run.first % kPeriod;
  for (std::size_t done = 0; done < run.elements;) {
    const std::size_t elements = std::min(run.elements - done, kPeriod - position);
    std::memcpy(memory.data() + done * size, run.table->data() + position * size, elements * size);
    done += elements;
    position = 0;
  }
}

std::uint64_t Pattern::count_wrong(const Run& run, std::span<const std::byte> memory) const {
  const std::size_t size = dtype_->size;
  std::uint64_t wrong = 0;
  std::size_t position = run.first % kPeriod;
  for (std::size_t done = 0; done < run.elements;) {
    const std::size_t elements = std::min(run.elements - done, kPeriod - position);
    const std::byte* const expected = run.table->data() + position * size;
    const std::byte* const found = memory.data() + done * size;
    if (std::memcmp(expected, found, elements * size) != 0) {
      wrong += differing(expected, found, elements);
    }
    done += elements;
    position = 0;
  }
  return wrong;
}

std::uint64_t Pattern::differing(const std::byte* expected, const std::byte* found,
                                 std::size_t elements) const {
  const std::size_t size = dtype_->size;
  const bool rounded = op_->reduction == Reduction::kAverage && dtype_->kind == Kind::kFloat;
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    const std::byte* const a = expected + i * size;
    const std::byte* const b = found + i * size;
    if (std::memcmp(a, b, size) == 0) continue;
    if (rounded) {
      const double should = decode_float(*dtype_, a);
      const double is = decode_float(*dtype_, b);
      if (std::abs(should - is) <= tolerance(*dtype_) * std::abs(should)) continue;
    }
    ++wrong;
  }
  return wrong;
}

}  // namespace ronde::perf
