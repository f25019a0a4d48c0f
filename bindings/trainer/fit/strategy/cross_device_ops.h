// SPDX-License-Identifier: Apache-2.0
// How the replicas of one process sum their gradients, where the program wants another way than
// the board, which Mirrored uses without being asked.
#pragma once

#include <functional>
#include <span>
#include <string_view>

namespace ronde::trainer {

// Given the same gradient of each replica, all of as many elements, leaves the sum in all of them.
// Any function of the program's will do. The bits of a training are those of as many processes
// where sums are in the replicas' order:
//   sum = (replica 0 + replica 1) + replica 2 ...
// What it throws ends the step on every replica. Thread safety: it is called for different tensors
// by several threads at a time.
using CrossDeviceOps = std::function<void(std::span<const std::span<float>> replicas)>;

// By the names of the guides (tf.distribute): "NcclAllReduce" (on CPUs the board, for which this is
// empty), "ReductionToOneDevice" (replica 0 sums, and hands the sum back) and
// "HierarchicalCopyAllReduce" (first within pairs of replicas, then between the pairs: from four
// replicas on its bits are those of as many hosts as pairs). Throws TrainerError for any other.
[[nodiscard]] CrossDeviceOps cross_device_ops(std::string_view name);

}  // namespace ronde::trainer
