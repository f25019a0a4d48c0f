// SPDX-License-Identifier: Apache-2.0
// Executes agreed batches, one after another in the order of the job: makes the collective of each
// and steps it. Batches that a device executes by itself are given to it in that order, and stay in
// progress while later ones follow.
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
#include "runtime/execute/batch.h"
#include "runtime/execute/device_launch.h"
#include "runtime/execute/staging.h"

namespace ronde::runtime {

// Owns the data plane and the batches; shares the device with the engine. It touches the memory of
// a batch until the batch is in `finished` or abandon() returns. No function blocks,
// except abandon(), close_device() and tune().
//
// Thread safety: none; only the agent uses it.
class Executor {
 public:
  // `watch`: how often a step retries before it returns that nothing can go on; 0 where ranks
  // outnumber cores.
  Executor(std::unique_ptr<collectives::DataPlane> plane, std::int32_t rank, int watch);

  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Sets the device; before the first batch. direct: the devices of all ranks reach each other, so
  // that batches go to them and not through host memory. shared: another executor uses the device
  // too, and aborts and closes it.
  void use(std::shared_ptr<collectives::Device> device, bool direct, bool shared = false);

  // Whether batches of devices go to the devices, which average without weights.
  [[nodiscard]] bool direct() const { return direct_; }

  void enqueue(Batch batch) { waiting_.push_back(std::move(batch)); }

  // Does one step; true: something went on. A batch that it finished is appended to `finished`: its
  // outputs are complete, nothing is outstanding. An error fails the job, and no step may follow.
  base::Result<bool> step(std::vector<FinishedBatch>& finished);

  // Polls the batches that are in progress on the device, and appends the finished ones, in their
  // order, to `finished`; true: there were some. An error fails the job; its batch is
  // first_on_device().
  base::Result<bool> poll_device(std::vector<FinishedBatch>& finished);
  [[nodiscard]] std::uint64_t first_on_device() const { return on_device_.front().sequence; }
  // A batch that the device has in progress, which streams can wait for.
  struct Issued {
    std::uint64_t sequence = 0;
    collectives::DeviceWorkPtr work;
  };
  // Those that have been given to the device since the last call.
  [[nodiscard]] std::vector<Issued> take_issued() { return std::exchange(issued_, {}); }

  // Whether the device has enough batches. It gets few in advance, so that tensors that become
  // ready meanwhile go into one batch.
  [[nodiscard]] bool device_full() const { return on_device_.size() >= kMostOnDevice; }
  // Whether the device works for this rank. It rings when it has finished, but not when it has
  // failed.
  [[nodiscard]] bool awaits_device() const;
  [[nodiscard]] bool busy() const { return current_ != nullptr || !waiting_.empty(); }
  // Whether peers must ring this rank's doorbell when they let its collective go on.
  void want_rings(bool wanted) { plane_->want_rings(wanted); }
  // The batch that is being executed by stepping; only while busy().
  [[nodiscard]] const collectives::Exchange& current() const { return waiting_.front().exchange; }

  base::Status tune(const base::Config& config, const std::function<base::Status()>& idle) {
    return plane_->tune(config, idle);
  }
  [[nodiscard]] std::string description() const { return plane_->description(); }
  // How long the phases of the current batch take; nullptr where nobody measures them.
  [[nodiscard]] collectives::BatchTimes* times() { return plane_->times(); }

  // Drops all batches and aborts the device, after a failure. Memory that requests of the transport
  // may point at stays in the workspace.
  void abandon(const std::string& why = "the job has failed");
  // Closes and releases the device. Afterwards nothing is in progress there, unless it does not
  // answer.
  void close_device();

 private:
  static constexpr std::size_t kMostOnDevice = 2;

  base::Result<collectives::DataPlane::CollectivePtr> make(const Batch& batch);
  void conclude(std::vector<FinishedBatch>& finished);

  const std::unique_ptr<collectives::DataPlane> plane_;
  const std::int32_t rank_;
  const int watch_;
  std::shared_ptr<collectives::Device> device_;
  bool direct_ = false;
  bool shared_ = false;
  StagingLanes lanes_;
  Launched launched_;  // the result of the current launch
  std::unique_ptr<collectives::Collective> current_;
  std::deque<Batch> waiting_;     // the front is the current one
  std::deque<Issued> on_device_;  // in order
  std::vector<Issued> issued_;
};

}  // namespace ronde::runtime
