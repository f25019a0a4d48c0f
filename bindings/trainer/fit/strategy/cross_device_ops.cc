// SPDX-License-Identifier: Apache-2.0
// Sums over replicas whose gradients lie in one address space.
#include "bindings/trainer/fit/strategy/cross_device_ops.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

void add(std::span<float> to, std::span<const float> more) {
  std::ranges::transform(to, more, to.begin(), std::plus<>());
}

// Within groups of replicas that follow one another, and then between the groups.
CrossDeviceOps in_groups(std::size_t size) {
  return [size](std::span<const std::span<float>> replicas) {
    for (std::size_t first = 0; first < replicas.size(); first += size) {
      const std::size_t end = std::min(first + size, replicas.size());
      for (std::size_t other = first + 1; other < end; ++other) {
        add(replicas[first], replicas[other]);
      }
      if (first != 0) add(replicas.front(), replicas[first]);
    }
    for (const std::span<float> other : replicas.subspan(1)) {
      std::ranges::copy(replicas.front(), other.begin());
    }
  };
}

}  // namespace

CrossDeviceOps cross_device_ops(std::string_view name) {
  if (name == "NcclAllReduce") return {};
  if (name == "HierarchicalCopyAllReduce") return in_groups(2);
  if (name == "ReductionToOneDevice") return in_groups(SIZE_MAX);
  throw TrainerError("there are no cross-device operations \"" + std::string(name) +
                         "\": use NcclAllReduce, HierarchicalCopyAllReduce or ReductionToOneDevice",
                     kExitConfiguration);
}

}  // namespace ronde::trainer
