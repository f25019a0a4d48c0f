// SPDX-License-Identifier: Apache-2.0
// The results of a ring, computed serially and as plainly as possible: the order rule of
// rule_oracle.h for one element of a known chunk, with 16-bit compression; and numbers to test
// with.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "collectives/kernels/reduce.h"
#include "test/unit/collectives/rule_oracle.h"

namespace ronde::collectives::oracle {

// Reduces element `index` of a tensor, which belongs to `chunk`; inputs[r] is rank r's. Uses the
// memory of `contributions`.
inline std::uint64_t ring_element(const Reduction& what, const std::vector<Bytes>& inputs,
                                  std::int64_t index, std::int64_t chunk,
                                  std::vector<std::uint64_t>& contributions) {
  const auto ranks = static_cast<std::int64_t>(inputs.size());
  const DType wire = what.compression == base::Compression::kNone  ? what.dtype
                     : what.compression == base::Compression::kF16 ? DType::kF16
                                                                   : DType::kBf16;
  contributions.clear();
  for (std::int64_t k = 1; k <= ranks; ++k) {
    const Bytes& input = inputs[static_cast<std::size_t>((chunk + k) % ranks)];
    const std::uint64_t bits = load(what.dtype, input.data(), index);
    contributions.push_back(wire == what.dtype ? bits : encode(wire, decode(what.dtype, bits)));
  }
  Reduction on_wire = what;
  on_wire.dtype = wire;
  const std::uint64_t sum = reduce_element(on_wire, contributions);
  return wire == what.dtype ? sum : encode(what.dtype, decode(wire, sum));
}

// Reduces a block that belongs to one rank as a whole.
inline Bytes ring_block(const Reduction& what, const std::vector<Bytes>& inputs,
                        std::int64_t chunk) {
  Bytes result(inputs[0].size());
  const auto elements = static_cast<std::int64_t>(result.size()) / base::size_of(what.dtype);
  std::vector<std::uint64_t> contributions;
  for (std::int64_t i = 0; i < elements; ++i) {
    store(what.dtype, result.data(), i, ring_element(what, inputs, i, chunk, contributions));
  }
  return result;
}

// Reduces a tensor, of which line l of L belongs to chunk floor(l * ranks / L): lines of the user's
// bytes, whatever travels.
inline Bytes ring_tensor(const Reduction& what, const std::vector<Bytes>& inputs) {
  Bytes result(inputs[0].size());
  const auto bytes = static_cast<std::int64_t>(result.size());
  const std::int64_t lines = (bytes + 63) / 64;
  const std::int64_t size = base::size_of(what.dtype);
  std::vector<std::uint64_t> contributions;
  for (std::int64_t i = 0; i < bytes / size; ++i) {
    const std::int64_t chunk = i * size / 64 * static_cast<std::int64_t>(inputs.size()) / lines;
    store(what.dtype, result.data(), i, ring_element(what, inputs, i, chunk, contributions));
  }
  return result;
}

// Floating-point numbers of very different magnitudes, so that every other order of summation gives
// other bits; any bytes for the other types.
template <class Random>  // 64 random bits a call
Bytes random_elements(DType dtype, std::int64_t elements, Random& random) {
  Bytes memory(static_cast<std::size_t>(elements * base::size_of(dtype)));
  if (!base::is_floating(dtype)) {
    for (std::byte& b : memory) {
      b = static_cast<std::byte>(dtype == DType::kBool ? random() % 3 : random() % 256);
    }
    return memory;
  }
  std::uniform_real_distribution<double> mantissa(-2.0, 2.0);
  std::uniform_int_distribution<int> exponent(-8, 8);
  for (std::int64_t i = 0; i < elements; ++i) {
    const double factor = two_to(exponent(random));
    store(dtype, memory.data(), i, encode(dtype, mantissa(random) * factor));
  }
  return memory;
}

}  // namespace ronde::collectives::oracle
