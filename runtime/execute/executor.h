// SPDX-License-Identifier: Apache-2.0
// Executes agreed batches, one after another in the order of the job: makes the collective of each
// and steps it. Batches that a device does by itself are put on their way in that order, and stay
// under way while later ones follow.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "collectives/device/device.h"
#include "collectives/plane/plane.h"
#include "collectives/transport/collective.h"
#include "runtime/execute/batch_parts.h"
#include "runtime/execute/device_launch.h"
#include "runtime/execute/staging.h"
#include "runtime/tensors/tensor_table.h"

namespace ronde::runtime {

// Thread safety: belongs to the agent.
class Executor {
 public:
  // `watch`: how often a step looks again before it says that nothing can go on; 0 where ranks
  // outnumber cores.
  Executor(std::unique_ptr<collectives::DataPlane> plane, std::int32_t rank, std::int32_t size,
           int watch);

  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Before the first batch. direct: the devices of all ranks reach each other, so that batches go
  // to them and not through host memory.
  void use(std::shared_ptr<collectives::Device> device, bool direct);

  void enqueue(ExecutableBatch batch) { waiting_.push_back(std::move(batch)); }

  // One step. What it finished is appended to `finished`: outputs are complete, nothing is
  // outstanding. An error ends the job: nothing may be stepped after it.
  base::Result<bool> step(std::vector<ExecutableBatch>& finished);

  // Looks at the batches that are under way on the device; those that are over, the first ones
  // first, are appended to `finished`. An error ends the job; it is of first_under_way().
  base::Result<bool> land(std::vector<ExecutableBatch>& finished);
  [[nodiscard]] const ExecutableBatch& first_under_way() const { return under_way_.front().batch; }
  // Tensors whose batch has been given to the device since the last call: streams can wait for it.
  [[nodiscard]] std::vector<LocalTensorPtr> take_issued() { return std::exchange(issued_, {}); }

  // What the device does by itself is given work in advance, but little: what becomes ready
  // meanwhile goes together.
  [[nodiscard]] bool device_full() const { return under_way_.size() >= kMostUnderWay; }
  // The device is at work here: it rings, but not when it has failed.
  [[nodiscard]] bool awaits_device() const;
  [[nodiscard]] bool busy() const { return current_ != nullptr || !waiting_.empty(); }
  // The peers must ring this rank's doorbell when they move a collective of it along, or need not.
  void want_rings(bool wanted) { plane_->want_rings(wanted); }
  // The batch that is being executed by stepping; only while busy().
  [[nodiscard]] const ExecutableBatch& batch() const { return waiting_.front(); }

  base::Status tune(const base::Config& config, const std::function<base::Status()>& idle) {
    return plane_->tune(config, idle);
  }
  [[nodiscard]] std::string description() const { return plane_->description(); }

  // Forgets everything, which the device is told to end. Memory that requests may point at stays in
  // the workspace.
  void abandon(const std::string& why = "the job has failed");
  // Lets go of the device. Nothing of it is under way, unless it does not answer.
  void close_device();

 private:
  struct UnderWay {
    ExecutableBatch batch;
    collectives::DeviceWorkPtr work;
  };
  static constexpr std::size_t kMostUnderWay = 2;

  base::Result<collectives::DataPlane::CollectivePtr> make(const ExecutableBatch& batch);
  base::Result<collectives::DataPlane::CollectivePtr> make_on_device(const ExecutableBatch& batch);
  void conclude(std::vector<ExecutableBatch>& finished);
  [[nodiscard]] collectives::DataPlane::CollectivePtr make_all_to_all(const ExecutableBatch& batch);

  const std::unique_ptr<collectives::DataPlane> plane_;
  const std::int32_t rank_;
  const std::int32_t size_;
  const int watch_;
  std::shared_ptr<collectives::Device> device_;
  bool direct_ = false;
  StagingLanes lanes_;
  Launched launched_;  // what the current one came to
  std::unique_ptr<collectives::Collective> current_;
  std::deque<ExecutableBatch> waiting_;  // the front is the current one
  std::deque<UnderWay> under_way_;       // in order
  std::vector<LocalTensorPtr> issued_;
};

}  // namespace ronde::runtime
