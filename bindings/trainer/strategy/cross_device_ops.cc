// SPDX-License-Identifier: Apache-2.0
// Sums over replicas whose gradients lie in one address space.
#include "bindings/trainer/strategy/cross_device_ops.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

void add(std::span<float> to, std::span<const float> more) {
  std::ranges::transform(to, more, to.begin(), std::plus<>());
}

}  // namespace

HierarchicalCopyAllReduce::HierarchicalCopyAllReduce(std::size_t group) : group_(group) {
  if (group == 0) throw TrainerError("HierarchicalCopyAllReduce: groups of 0: use at least 1");
}

void HierarchicalCopyAllReduce::sum(std::span<const std::span<float>> replicas) {
  for (std::size_t first = 0; first < replicas.size(); first += group_) {
    const std::size_t end = std::min(first + group_, replicas.size());
    for (std::size_t other = first + 1; other < end; ++other) add(replicas[first], replicas[other]);
    if (first != 0) add(replicas.front(), replicas[first]);
  }
  for (const std::span<float> other : replicas.subspan(1)) {
    std::ranges::copy(replicas.front(), other.begin());
  }
}

std::shared_ptr<CrossDeviceOps> cross_device_ops(std::string_view name) {
  if (name == "NcclAllReduce") return nullptr;
  if (name == "HierarchicalCopyAllReduce") return std::make_shared<HierarchicalCopyAllReduce>();
  if (name == "ReductionToOneDevice") return std::make_shared<HierarchicalCopyAllReduce>(SIZE_MAX);
  throw TrainerError("there are no cross-device operations \"" + std::string(name) +
                         "\": use NcclAllReduce, HierarchicalCopyAllReduce or ReductionToOneDevice",
                     kExitConfiguration);
}

}  // namespace ronde::trainer
