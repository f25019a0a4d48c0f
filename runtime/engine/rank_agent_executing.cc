// SPDX-License-Identifier: Apache-2.0
// What a rank's agent does with the batches that were decided on.
#include <algorithm>
#include <string>
#include <utility>

#include "runtime/engine/rank_agent.h"

namespace ronde::runtime {

using base::Code;
using base::Instant;
using base::Result;
using base::Status;

namespace {

// Steps of one batch between two looks at the control plane.
constexpr int kStepsPerLook = 64;

// Into a string that is used again: every batch has one.
void describe(const ExecutableBatch& batch, std::string& text) {
  const LocalTensor& first = *batch.tensors.front();
  text.assign("in batch ").append(std::to_string(batch.sequence)).append(": ");
  text.append(name_of(first.signature.operation)).append(" of '").append(first.name).append("'");
  if (batch.tensors.size() > 1) {
    text.append(" and ").append(std::to_string(batch.tensors.size() - 1)).append(" more");
  }
}

// What the device refused it refused as a batch; its owners know tensors.
Status of_tensor(const LocalTensor& tensor, const Status& why) {
  return Status::error(why.code(), "'" + tensor.name + "': " + why.message());
}

}  // namespace

Status RankAgent::on_batch(const BatchDecision& decision) {
  const std::uint64_t received = received_batches_.load(std::memory_order_relaxed);
  if (decision.sequence != received + 1 || decision.items.empty()) {
    return Status::error(Code::kInternal, "batch " + std::to_string(decision.sequence) +
                                              " came after batch " + std::to_string(received));
  }
  // Whoever submits a tensor of this batch again has heard of its end, and so sees this.
  received_batches_.store(decision.sequence, std::memory_order_relaxed);
  ExecutableBatch batch;
  batch.sequence = decision.sequence;
  for (const BatchItem& item : decision.items) {
    auto claimed = table_.claim(item);
    RONDE_RETURN_IF_ERROR(claimed.status());
    if (batch.tensors.empty()) batch.agreed = std::move(claimed->agreed);
    batch.tensors.push_back(std::move(claimed->tensor));
  }
  describe(batch, doing_);
  board_.set_doing(doing_);
  executor_.enqueue(std::move(batch));
  return {};
}

Result<int> RankAgent::execute() {
  int work = 0;
  strides_ = false;
  const auto landed = executor_.land(finished_);
  // What has come to its end did so before anything failed.
  take_note();
  if (!landed.ok()) return failed_in(executor_.first_under_way(), landed.status());
  if (*landed) ++work;
  // Not beyond the end of a batch: whoever waits for it should hear of it, and the coordinator has
  // another one, perhaps.
  bool ended = false;
  for (int i = 0; i < kStepsPerLook && executor_.busy() && !ended; ++i) {
    if (!batch_began_) batch_began_ = clock_.now();
    const auto progress = executor_.step(finished_);
    ended = !finished_.empty();
    take_note();
    if (!progress.ok()) return failed_in(executor_.batch(), progress.status());
    if (!*progress) return work;
    ++work;
  }
  strides_ = executor_.busy();
  return work;
}

Status RankAgent::failed_in(const ExecutableBatch& batch, const Status& why) {
  describe(batch, doing_);
  return Status::error(why.code(), "rank " + std::to_string(job_.rank()) + " failed " + doing_,
                       why);
}

// Of what the executor has finished, and of what it has given to the device.
void RankAgent::take_note() {
  for (const LocalTensorPtr& tensor : executor_.take_issued()) {
    hooks_.complete(tensor->work->issued);
  }
  if (finished_.empty()) return;
  const Instant now = clock_.now();
  if (batch_began_) {
    execution_nanoseconds_.fetch_add((now - *batch_began_).count(), std::memory_order_relaxed);
  }
  batch_began_.reset();
  if (executor_.awaits_device()) batch_began_ = now;
  for (const ExecutableBatch& batch : finished_) finish(batch);
  finished_.clear();
}

void RankAgent::finish(const ExecutableBatch& batch) {
  batches_.fetch_add(1, std::memory_order_relaxed);
  for (const LocalTensorPtr& tensor : batch.tensors) {
    // Those of a group count one by one; a barrier has no memory, and counts as one.
    tensors_.fetch_add(std::max<std::size_t>(1, tensor->views.size()), std::memory_order_relaxed);
    payload_bytes_.fetch_add(base::narrow<std::uint64_t>(tensor->bytes().value()),
                             std::memory_order_relaxed);
    end(tensor, batch.status.ok() ? Status() : of_tensor(*tensor, batch.status));
  }
}

}  // namespace ronde::runtime
