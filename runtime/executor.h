// SPDX-License-Identifier: Apache-2.0
// Executes agreed batches, one after another in the order of the job: makes the collective of each
// and steps it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/collective.h"
#include "runtime/data_plane.h"
#include "runtime/signature.h"
#include "runtime/tensor_table.h"

namespace ronde::runtime {

// A batch with this rank's memory behind it.
struct ExecutableBatch {
  std::uint64_t sequence = 0;
  AgreedTensor agreed;  // of the first tensor; all of a batch have the same operation, dtype and op
  std::vector<LocalTensorPtr> tensors;
};

// Thread safety: belongs to the agent.
class Executor {
 public:
  // `watch`: how often a step looks again before it says that nothing can go on; 0 where ranks
  // outnumber cores.
  Executor(std::unique_ptr<DataPlane> plane, std::int32_t rank, std::int32_t size, int watch);

  void enqueue(ExecutableBatch batch) { waiting_.push_back(std::move(batch)); }

  // One step. What it finished is appended to `finished`: outputs are complete, nothing is
  // outstanding. An error ends the job: nothing may be stepped after it.
  base::Result<bool> step(std::vector<ExecutableBatch>& finished);

  [[nodiscard]] bool busy() const { return current_ != nullptr || !waiting_.empty(); }
  // The peers must ring this rank's doorbell when they move a collective of it along, or need not.
  void want_rings(bool wanted) { plane_->want_rings(wanted); }
  // The batch that is being executed; only while busy().
  [[nodiscard]] const ExecutableBatch& batch() const { return waiting_.front(); }

  base::Status tune(const base::Config& config, const std::function<base::Status()>& idle) {
    return plane_->tune(config, idle);
  }
  [[nodiscard]] std::string description() const { return plane_->description(); }

  // Forgets everything. Memory that requests may point at stays in the workspace.
  void abandon();

 private:
  base::Result<DataPlane::CollectivePtr> make(const ExecutableBatch& batch);
  [[nodiscard]] DataPlane::CollectivePtr make_reduce_scatter(const ExecutableBatch& batch);
  [[nodiscard]] DataPlane::CollectivePtr make_all_to_all(const ExecutableBatch& batch);

  const std::unique_ptr<DataPlane> plane_;
  const std::int32_t rank_;
  const std::int32_t size_;
  const int watch_;
  std::unique_ptr<collectives::Collective> current_;
  std::deque<ExecutableBatch> waiting_;  // the front is the current one
};

}  // namespace ronde::runtime
