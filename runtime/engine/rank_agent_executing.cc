// SPDX-License-Identifier: Apache-2.0
// How a rank's agent executes batches: claims their tensors, steps the executor, finishes their
// works.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "runtime/engine/batch_of.h"
#include "runtime/engine/rank_agent.h"

namespace ronde::runtime {

using base::Code;
using base::Instant;
using base::Result;
using base::Status;

namespace {

// How long the loss of a connection is held back: a death is noticed within milliseconds.
constexpr base::Nanoseconds kLossGrace = std::chrono::seconds(1);

// How many steps of a batch the agent takes before it looks at the control plane again.
constexpr int kStepsPerLook = 64;

// How often the agent looks at a transport that is never ready to sleep before it looks at
// everything else.
constexpr int kArmings = 16;

// The device's error is about the batch; the caller knows its tensor, so the error names that.
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
  // A thread that submits a tensor of this batch again has seen the work done, and with it this
  // store.
  received_batches_.store(decision.sequence, std::memory_order_relaxed);
  RONDE_ASSIGN_OR_RETURN(auto claimed, table_.claim(decision.items));
  executor_.enqueue(batch_of(decision.sequence, claimed, job_.size(), device_));
  executing_.push_back({decision.sequence, std::move(claimed.tensors)});
  describe(executing_.back(), activity_);
  board_.set_activity(activity_);
  return {};
}

std::deque<RankAgent::Executing>::iterator RankAgent::executing(std::uint64_t sequence) {
  const auto found =
      std::find_if(executing_.begin(), executing_.end(),
                   [&](const Executing& batch) { return batch.sequence == sequence; });
  base::check(found != executing_.end(), "the executor has batches of this agent only");
  return found;
}

// Writes into a string that is used again, because every batch needs one.
void RankAgent::describe(const Executing& batch, std::string& text) {
  const LocalTensor& first = *batch.tensors.front();
  text.assign("in batch ").append(std::to_string(batch.sequence)).append(": ");
  text.append(name_of(first.signature.operation)).append(" of '").append(first.name).append("'");
  if (batch.tensors.size() > 1) {
    text.append(" and ").append(std::to_string(batch.tensors.size() - 1)).append(" more");
  }
}

// What the executor had may be in use until it has dropped it.
void RankAgent::drop_batches(const std::string& why) {
  executor_.abandon(why);
  executing_.clear();
}

Result<int> RankAgent::execute() {
  int work = 0;
  batch_can_go_on_ = false;
  if (held_back_) {
    if (clock_.now() >= held_back_->until) return held_back_->why;
    return 0;
  }
  const auto polled = executor_.poll_device(finished_);
  // Batches that finished did so before the failure, so their works succeed.
  finish_works();
  if (!polled.ok()) return failed_in(executor_.first_on_device(), polled.status());
  if (*polled) ++work;
  // The loop stops when a batch finishes, so that its waiters are notified at once and the
  // coordinator can send the next.
  bool ended = false;
  for (int i = 0; i < kStepsPerLook && executor_.busy() && !ended; ++i) {
    if (!batch_began_) batch_began_ = clock_.now();
    const auto progress = executor_.step(finished_);
    ended = !finished_.empty();
    finish_works();
    if (!progress.ok()) return lost_in(executor_.current().sequence, progress.status());
    if (!*progress) return work;
    ++work;
  }
  batch_can_go_on_ = executor_.busy();
  return work;
}

// The transport's part in going to sleep, in every step after which the holder may sleep or leave:
// those after want_rings(true). (After a step that did something for a batch the holder steps
// again.) Then the transport is armed, so that whatever
// happens next makes its descriptor readable, and the background thread watches that: in this
// order, because a descriptor that is readable already ends its sleep at once. Without a batch it
// is needed too: other ranks connect, and the last words of a batch may still have to leave.
Result<int> RankAgent::arm_transport(int work) {
  if (transport_fd() < 0) return 0;
  int arrived = 0;
  for (int i = 0; i < kArmings; ++i) {
    if (!rings_wanted_) {
      // Nothing else moves what UCX still has to send, or lets other ranks connect.
      if (!executor_.busy()) RONDE_RETURN_IF_ERROR(transport_->progress());
      return arrived;
    }
    if (executor_.busy() && work + arrived > 0) return arrived;
    RONDE_ASSIGN_OR_RETURN(const auto armed, transport_->arm());
    if (armed) {
      if (transport_watched_.exchange(true, std::memory_order_acq_rel)) return arrived;
      RONDE_RETURN_IF_ERROR(hooks_.watch(transport_fd()));
      return arrived;
    }
    RONDE_RETURN_IF_ERROR(transport_->progress());
    RONDE_ASSIGN_OR_RETURN(const auto executed, execute());
    arrived += executed;
  }
  transport_moves_ = true;
  return arrived;
}

// A transport notices at once that a connection is lost, but not why. Whoever watches the process
// of that rank, or the link to its host, knows better, and gets the time to say it.
Result<int> RankAgent::lost_in(std::uint64_t sequence, const Status& why) {
  Status failure = failed_in(sequence, why);
  if (why.code() != Code::kPeerFailed) return failure;
  held_back_ = HeldBack{std::move(failure), clock_.after(kLossGrace)};
  return 0;
}

Status RankAgent::failed_in(std::uint64_t sequence, const Status& why) {
  describe(*executing(sequence), activity_);
  return Status::error(why.code(), "rank " + std::to_string(job_.rank()) + " failed " + activity_,
                       why);
}

// Finishes the works of the batches that the executor has finished, and marks those as issued that
// it has given to the device.
void RankAgent::finish_works() {
  for (const Executor::Issued& issued : executor_.take_issued()) {
    for (const LocalTensorPtr& tensor : executing(issued.sequence)->tensors) {
      tensor->work->on_device = issued.work;
      hooks_.complete(tensor->work->issued);
    }
  }
  if (finished_.empty()) return;
  const Instant now = clock_.now();
  if (batch_began_) {
    execution_nanoseconds_.fetch_add((now - *batch_began_).count(), std::memory_order_relaxed);
  }
  batch_began_.reset();
  if (executor_.awaits_device()) batch_began_ = now;
  for (const FinishedBatch& finished : finished_) finish(finished);
  finished_.clear();
}

void RankAgent::finish(const FinishedBatch& finished) {
  batches_.fetch_add(1, std::memory_order_relaxed);
  const auto batch = executing(finished.sequence);
  for (const LocalTensorPtr& tensor : batch->tensors) {
    // The members of a group are counted one by one; a barrier has no views and is counted as one.
    tensors_.fetch_add(std::max<std::size_t>(1, tensor->views.size()), std::memory_order_relaxed);
    payload_bytes_.fetch_add(base::narrow<std::uint64_t>(tensor->bytes().value()),
                             std::memory_order_relaxed);
    end(tensor, finished.status.ok() ? Status() : of_tensor(*tensor, finished.status));
  }
  executing_.erase(batch);
}

}  // namespace ronde::runtime
