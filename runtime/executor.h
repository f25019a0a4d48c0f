// SPDX-License-Identifier: Apache-2.0
// Executes agreed batches, one after another in the order of the job: makes the collective of each
// and steps it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/numbers.h"
#include "base/status.h"
#include "collectives/collective.h"
#include "collectives/transport.h"
#include "collectives/workspace.h"
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
  // The workspace is the engine's: it must outlive the transport.
  Executor(collectives::Transport& transport, collectives::Workspace& workspace,
           base::Bytes segment);

  void enqueue(ExecutableBatch batch) { waiting_.push_back(std::move(batch)); }

  // One step. What it finished is appended to `finished`: outputs are complete, nothing is
  // outstanding. An error ends the job: nothing may be stepped after it.
  base::Result<bool> step(std::vector<ExecutableBatch>& finished);

  [[nodiscard]] bool busy() const { return current_ != nullptr || !waiting_.empty(); }
  // The batch that is being executed; only while busy().
  [[nodiscard]] const ExecutableBatch& batch() const { return waiting_.front(); }

  // Forgets everything. Memory that requests may point at stays in the workspace.
  void abandon();

 private:
  base::Result<std::unique_ptr<collectives::Collective>> make(ExecutableBatch& batch);

  collectives::Transport& transport_;
  collectives::Workspace& workspace_;
  base::Bytes segment_;
  std::unique_ptr<collectives::Collective> current_;
  std::deque<ExecutableBatch> waiting_;  // the front is the current one
};

}  // namespace ronde::runtime
