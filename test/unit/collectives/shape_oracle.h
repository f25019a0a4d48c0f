// SPDX-License-Identifier: Apache-2.0
// The order rule for a job of any shape, serially and as plainly as possible: for each element
// first the ranks of a host in rank order, then the hosts c+1, c+2, ..., c for chunk c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "collectives/kernels/reduce.h"
#include "test/unit/collectives/rule_oracle.h"

namespace ronde::collectives::oracle {

using Hosts = std::vector<std::vector<int>>;  // the ranks of each, ascending

// Reduces one element, of which the hosts' sums come in the order of its chunk; an average divides
// by `ranks`.
inline std::uint64_t reduce_hosts(Reduction what, const std::vector<std::uint64_t>& sums,
                                  std::int64_t ranks) {
  what.prescale = 1.0;
  what.prescales.clear();
  if (what.divisor != 0.0) ranks = static_cast<std::int64_t>(what.divisor);
  const double parts = what.divisor != 0.0 ? what.divisor : static_cast<double>(ranks);
  if (what.op != ReduceOp::kAverage) return reduce_element(what, sums);
  what.op = ReduceOp::kSum;
  if (base::is_floating(what.dtype)) {
    what.postscale /= parts;
    return reduce_element(what, sums);
  }
  const std::uint64_t sum = reduce_element(what, sums);
  if (!is_signed(what.dtype)) return sum / static_cast<std::uint64_t>(ranks);
  const auto shift = static_cast<unsigned>(64 - 8 * base::size_of(what.dtype));
  return static_cast<std::uint64_t>(as_signed(what.dtype, sum) / ranks) << shift >> shift;
}

// The memory of shaped_element(), which is called for millions of elements.
struct Scratch {
  std::vector<std::uint64_t> sums;
  std::vector<std::uint64_t> of_host;
};

// Reduces an element of a tensor that belongs to `chunk`, over at least two hosts; contributions
// are by rank, in the dtype that travels.
inline std::uint64_t shaped_element(const Reduction& what, const Hosts& hosts,
                                    const std::vector<std::uint64_t>& contributions,
                                    std::int64_t chunk, Scratch& scratch) {
  Reduction in_host = what;
  in_host.postscale = 1.0;
  if (what.op == ReduceOp::kAverage) in_host.op = ReduceOp::kSum;
  auto& [sums, of_host] = scratch;
  sums.clear();
  for (std::size_t k = 1; k <= hosts.size(); ++k) {
    of_host.clear();
    in_host.prescales.clear();
    for (const int rank : hosts[(static_cast<std::size_t>(chunk) + k) % hosts.size()]) {
      of_host.push_back(contributions[static_cast<std::size_t>(rank)]);
      if (!what.prescales.empty()) {
        in_host.prescales.push_back(what.prescales[static_cast<std::size_t>(rank)]);
      }
    }
    sums.push_back(reduce_element_of_host(in_host, of_host));
  }
  return reduce_hosts(what, sums, static_cast<std::int64_t>(contributions.size()));
}

// Reduces a tensor; inputs[r] is rank r's, and element i belongs to chunk chunk_of(i).
template <class ChunkOf>
Bytes shaped_elements(const Reduction& what, const Hosts& hosts, const std::vector<Bytes>& inputs,
                      ChunkOf&& chunk_of) {
  Reduction on_wire = what;
  on_wire.compression = base::Compression::kNone;
  on_wire.dtype = base::wire_dtype(what.dtype, what.compression);
  const bool compressed = on_wire.dtype != what.dtype;
  Bytes result(inputs[0].size());
  std::vector<std::uint64_t> contributions(inputs.size());
  Scratch scratch;
  for (std::int64_t i = 0; i < std::ssize(result) / base::size_of(what.dtype); ++i) {
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      const std::uint64_t bits = load(what.dtype, inputs[rank].data(), i);
      contributions[rank] = compressed ? encode(on_wire.dtype, decode(what.dtype, bits)) : bits;
    }
    const std::uint64_t sum = shaped_element(on_wire, hosts, contributions, chunk_of(i), scratch);
    store(what.dtype, result.data(), i,
          compressed ? encode(what.dtype, decode(on_wire.dtype, sum)) : sum);
  }
  return result;
}

// Reduces a tensor whose chunks consist of its lines.
inline Bytes shaped_tensor(const Reduction& what, const Hosts& hosts,
                           const std::vector<Bytes>& inputs) {
  const std::int64_t lines = (std::ssize(inputs[0]) + 63) / 64;
  return shaped_elements(what, hosts, inputs, [&](std::int64_t element) {
    const std::int64_t line = element * base::size_of(what.dtype) / 64;
    return line * static_cast<std::int64_t>(hosts.size()) / lines;
  });
}

// Reduces the block of a rank in a reduce-scatter, all of which belongs to its host's chunk.
inline Bytes shaped_block(const Reduction& what, const Hosts& hosts,
                          const std::vector<Bytes>& inputs, int rank) {
  std::int64_t chunk = 0;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    for (const int here : hosts[host]) {
      if (here == rank) chunk = static_cast<std::int64_t>(host);
    }
  }
  return shaped_elements(what, hosts, inputs, [chunk](std::int64_t) { return chunk; });
}

}  // namespace ronde::collectives::oracle
