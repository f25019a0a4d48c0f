// SPDX-License-Identifier: Apache-2.0
// How the replicas of one process sum their gradients, where the program wants another way than
// the board, which Mirrored uses without being asked.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace ronde::trainer {

// Derive from it for an algorithm of one's own, and give it to Mirrored. The bits of a training are
// those of as many processes where sums are in the replicas' order:
//   sum = (replica 0 + replica 1) + replica 2 ...
//
// Thread safety: sum() is called for different tensors by several threads at a time.
class CrossDeviceOps {
 public:
  CrossDeviceOps() = default;
  CrossDeviceOps(const CrossDeviceOps&) = delete;
  CrossDeviceOps& operator=(const CrossDeviceOps&) = delete;
  virtual ~CrossDeviceOps() = default;

  // `replicas` has the same gradient of each replica, all of as many elements; leaves the sum in
  // all of them. What it throws ends the step on every replica.
  virtual void sum(std::span<const std::span<float>> replicas) = 0;
};

// First within groups of replicas that follow one another, then between the groups:
// tf.distribute.HierarchicalCopyAllReduce. With groups of more than one its sums are in another
// order, so from four replicas on its bits are others (those of as many hosts as groups). All in
// one group is tf.distribute.ReductionToOneDevice: replica 0 sums, and hands the sum back.
class HierarchicalCopyAllReduce final : public CrossDeviceOps {
 public:
  // Throws TrainerError for groups of 0.
  explicit HierarchicalCopyAllReduce(std::size_t group = 2);
  void sum(std::span<const std::span<float>> replicas) override;

 private:
  std::size_t group_;
};

// By the names of the guides: "NcclAllReduce" (on CPUs the board, for which this is null),
// "HierarchicalCopyAllReduce", "ReductionToOneDevice". Throws TrainerError for any other.
[[nodiscard]] std::shared_ptr<CrossDeviceOps> cross_device_ops(std::string_view name);

}  // namespace ronde::trainer
