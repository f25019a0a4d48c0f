// SPDX-License-Identifier: Apache-2.0
// What a reduction of the list should give, by the order rule, and averages by weights as one of
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "test/conformance/case.h"
#include "test/support/twister.h"
#include "test/unit/collectives/rule_oracle.h"
#include "test/unit/collectives/shape_oracle.h"

namespace ronde::conformance {

inline std::int64_t sum_of(const Rows& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

inline Bytes cast(DType from, DType to, const Bytes& bytes) {
  namespace oracle = collectives::oracle;
  const std::int64_t elements = std::ssize(bytes) / base::size_of(from);
  Bytes result(static_cast<std::size_t>(elements * base::size_of(to)));
  for (std::int64_t i = 0; i < elements; ++i) {
    const double value = oracle::decode(from, oracle::load(from, bytes.data(), i));
    oracle::store(to, result.data(), i, oracle::encode(to, value));
  }
  return result;
}

// The allreduce of a tensor by the order rule.
[[nodiscard]] inline Bytes reduced_by_rule(const Reduction& what, const Hosts& hosts,
                                           const std::vector<Bytes>& inputs) {
  namespace oracle = collectives::oracle;
  if (hosts.size() > 1) return oracle::shaped_tensor(what, hosts, inputs);
  if (what.compression == base::Compression::kNone) {
    return oracle::allreduce_of_host(what, inputs);
  }
  Reduction on_wire = what;
  on_wire.compression = base::Compression::kNone;
  on_wire.dtype = base::wire_dtype(what.dtype, what.compression);
  std::vector<Bytes> rounded;
  rounded.reserve(inputs.size());
  for (const Bytes& input : inputs) rounded.push_back(cast(what.dtype, on_wire.dtype, input));
  return cast(on_wire.dtype, what.dtype, oracle::allreduce_of_host(on_wire, rounded));
}
// This rank's result of a reduce-scatter: `count` elements of the sum, from `first` on.
[[nodiscard]] inline Bytes scattered_by_rule(const Reduction& what, const Hosts& hosts,
                                             std::int32_t rank, const std::vector<Bytes>& inputs,
                                             std::int64_t first, std::int64_t count) {
  if (hosts.size() == 1)
    return part_of(reduced_by_rule(what, hosts, inputs), what.dtype, first, count);
  std::vector<Bytes> parts;
  parts.reserve(inputs.size());
  for (const Bytes& input : inputs) parts.push_back(part_of(input, what.dtype, first, count));
  return collectives::oracle::shaped_block(what, hosts, parts, rank);
}
inline double sum_of_weights(const std::vector<double>& weights) {
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}
// The weights of all ranks: a number of samples, a share of one, or none; not none on all.
inline std::vector<double> any_weights(std::int64_t ranks, testing::Twister& random) {
  constexpr double kWeights[] = {0.0, 1.0, 3.0, 32.0, 0.37, 5.5};
  std::vector<double> weights;
  for (std::int64_t rank = 0; rank < ranks; ++rank) weights.push_back(kWeights[random() % 6]);
  if (sum_of_weights(weights) == 0.0) weights.front() = 2.0;
  return weights;
}
// What the rule says of weights: a prescale for each contribution, in f64, and another divisor.
inline Reduction by_weights(Reduction what, const std::vector<double>& weights) {
  for (const double weight : weights) what.prescales.push_back(what.prescale * weight);
  what.divisor = sum_of_weights(weights);
  return what;
}

inline std::string text_of(const Reduction& what) {
  return std::string(base::name_of(what.op)) + (what.prescale == 1.0 ? "" : " prescaled") +
         (what.postscale == 1.0 ? "" : " postscaled") +
         (what.compression == base::Compression::kNone
              ? ""
              : " as " + std::string(base::name_of(what.compression)));
}

}  // namespace ronde::conformance
