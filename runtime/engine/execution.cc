// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/execution.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "collectives/plane/plane.h"
#include "runtime/engine/batch_of.h"
#include "runtime/sets/growing_plane.h"
#include "runtime/timeline/timeline.h"

namespace ronde::runtime {

using base::Instant;
using base::Result;
using base::Status;

namespace {

// How often the executor retries a batch that cannot go on before it returns: about a microsecond.
// Not where that asks a transport, which costs as much each time.
constexpr int kWatch = 16;

// The messages of a batch of so many bytes are there about as soon as a thread has gone to sleep
// and been woken.
constexpr std::int64_t kSoon = std::int64_t{64} << 10;

// How often the device is polled, because one that has failed does not ring.
constexpr base::Nanoseconds kDevicePoll = std::chrono::milliseconds(10);

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

Execution::Execution(Job& job, const RankContext& context, EndedWorks& works)
    : context_(context),
      works_(works),
      workspace_(std::make_unique<collectives::Workspace>()),
      transport_(job.take_transport()),
      executor_(make_plane(job), context.rank, job.oversubscribed() || transport_ ? 0 : kWatch) {}

Execution::~Execution() { keep_what_mpi_may_write(); }

// After a failure MPI may still write into the segments of unfinished requests and cannot be asked
// to stop, so their memory is never freed.
void Execution::keep_what_mpi_may_write() {
  if (transport_ == nullptr || !transport_->writes_after_destruction()) return;
  drop_batches();
  [[maybe_unused]] auto* const kept = workspace_.release();
  for (auto& one : kept_) {
    [[maybe_unused]] auto* const never_freed = one.release();
  }
}

std::unique_ptr<collectives::DataPlane> Execution::make_plane(Job& job) {
  const bool probes = job.probes();
  if (const SlotGrowth* const growth = job.slot_growth()) {
    return std::make_unique<GrowingPlane>(
        context_.board, *growth, context_.config,
        [this, probes](const collectives::Board& board) { return plane_over(board, probes); });
  }
  return plane_over(context_.board, probes);
}

std::unique_ptr<collectives::DataPlane> Execution::plane_over(const collectives::Board& board,
                                                              bool probes) {
  const base::Config& config = context_.config;
  if (context_.shape.hosts() > 1) {
    return collectives::make_two_level_plane(board, probes, context_.shape, *transport_,
                                             *workspace_, config);
  }
  // On one host a named algorithm counts every rank as a host.
  if (const auto* const forced = collectives::algorithm_of(config.algorithm)) {
    return collectives::make_message_plane(*transport_, *workspace_, config.segment_bytes, *forced);
  }
  return collectives::make_in_host_plane(board, probes);
}

void Execution::use(std::shared_ptr<collectives::Device> device, bool direct) {
  device_ = device;
  const bool within_set = context_.set != nullptr;
  executor_.use(std::move(device), direct && !within_set, within_set);
}

void Execution::close_device() {
  executor_.close_device();
  device_.reset();
}

void Execution::close() {
  close_device();
  drop_batches();
  keep_what_mpi_may_write();
}

// ---- sleeping ----

bool Execution::needs_polling() const {
  return transport_ != nullptr && transport_->needs_polling() && transport_->outstanding() > 0;
}

bool Execution::awaits_descriptor() const {
  return fd() >= 0 && transport_->outstanding() > 0 && executor_.busy() &&
         executor_.current().bytes().value() > kSoon;
}

Instant Execution::next_deadline() const {
  Instant next = held_back_ ? held_back_->until : base::kNever;
  if (executor_.awaits_device()) next = std::min(next, context_.clock.about_now() + kDevicePoll);
  return next;
}

// ---- stepping ----

void Execution::begin(std::uint64_t sequence, TensorTable::Claimed claimed) {
  Batch batch = batch_of(sequence, claimed, context_.shape.ranks(), device_,
                         context_.config.join_average == "all");
  // A plane that sends takes what lies on the board as other memory.
  const bool in_place = batch.exchange.on_board && context_.shape.hosts() == 1 &&
                        collectives::algorithm_of(context_.config.algorithm) == nullptr;
  executor_.enqueue(std::move(batch));
  executing_.push_back({sequence, std::move(claimed.tensors), in_place});
  describe(executing_.back(), activity_);
  context_.board.set_activity(activity_);
}

std::deque<Execution::Executing>::iterator Execution::executing(std::uint64_t sequence) {
  const auto found =
      std::find_if(executing_.begin(), executing_.end(),
                   [&](const Executing& batch) { return batch.sequence == sequence; });
  base::check(found != executing_.end(), "the executor has batches of this agent only");
  return found;
}

// Writes into a string that is used again, because every batch needs one.
void Execution::describe(const Executing& batch, std::string& text) const {
  const LocalTensor& first = *batch.tensors.front();
  text.assign("in batch ").append(std::to_string(batch.sequence));
  if (context_.set != nullptr) text.append(" of process set '").append(context_.set->name + "'");
  text.append(": ");
  text.append(name_of(first.signature.operation)).append(" of '").append(first.name).append("'");
  if (batch.tensors.size() > 1) {
    text.append(" and ").append(std::to_string(batch.tensors.size() - 1)).append(" more");
  }
}

// What the executor had may be in use until it has dropped it.
void Execution::drop_batches(const std::string& why) {
  executor_.abandon(why);
  executing_.clear();
}

Result<int> Execution::step() {
  int work = 0;
  can_go_on_ = false;
  if (held_back_) {
    if (context_.clock.now() >= held_back_->until) return held_back_->why;
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
    if (!batch_began_) begin_time();
    const auto progress = executor_.step(finished_);
    ended = !finished_.empty();
    finish_works();
    if (!progress.ok()) return lost_in(executor_.current().sequence, progress.status());
    if (!*progress) return work;
    ++work;
  }
  can_go_on_ = executor_.busy();
  return work;
}

// In every look after which the holder may sleep or leave: those after it has asked. (After one
// that did something for a batch the holder looks again.) Then the transport is armed, so that
// whatever happens next makes its descriptor readable, and the background thread watches that: in
// this order, because a descriptor that is readable already ends its sleep at once. Without a batch
// it is needed too: other ranks connect, and the last words of a batch may still have to leave.
Result<int> Execution::arm(int work, SleepState& sleep, const Others& others) {
  if (fd() < 0) return 0;
  int arrived = 0;
  for (int i = 0; i < kArmings; ++i) {
    if (!sleep.asked()) {
      // Nothing else moves what UCX still has to send, or lets other ranks connect.
      if (!executor_.busy()) RONDE_RETURN_IF_ERROR(transport_->progress());
      return arrived;
    }
    if ((executor_.busy() || others.busy) && work + arrived > 0) return arrived;
    RONDE_ASSIGN_OR_RETURN(const auto armed, transport_->arm());
    if (armed) {
      RONDE_RETURN_IF_ERROR(sleep.watch(fd()));
      return arrived;
    }
    RONDE_RETURN_IF_ERROR(transport_->progress());
    RONDE_ASSIGN_OR_RETURN(const auto executed, step());
    arrived += executed + others.step();
  }
  can_go_on_ = true;  // it never was ready to sleep
  return arrived;
}

// A transport notices at once that a connection is lost, but not why. Whoever watches the process
// of that rank, or the link to its host, knows better, and gets the time to say it.
Result<int> Execution::lost_in(std::uint64_t sequence, const Status& why) {
  Status failure = failed_in(sequence, why);
  if (why.code() != base::Code::kPeerFailed) return failure;
  held_back_ = HeldBack{std::move(failure), context_.clock.after(kLossGrace)};
  return 0;
}

Status Execution::failed_in(std::uint64_t sequence, const Status& why) {
  describe(*executing(sequence), activity_);
  return Status::error(why.code(), "rank " + std::to_string(context_.rank) + " failed " + activity_,
                       why);
}

// Finishes the works of the batches that the executor has finished, and marks those as issued that
// it has given to the device.
void Execution::finish_works() {
  for (const Executor::Issued& issued : executor_.take_issued()) {
    for (const LocalTensorPtr& tensor : executing(issued.sequence)->tensors) {
      works_.issue(*tensor, issued.work);
    }
  }
  if (finished_.empty()) return;
  const Instant now = context_.clock.now();
  last_end_.store(now.count(), std::memory_order_relaxed);
  if (context_.timeline->on()) {
    for (const FinishedBatch& finished : finished_) {
      trace(*executing(finished.sequence), finished.status.ok(), batch_began_.value_or(now), now);
    }
  }
  if (batch_began_) {
    counters_.nanoseconds.fetch_add((now - *batch_began_).count(), std::memory_order_relaxed);
  }
  batch_began_.reset();
  if (executor_.awaits_device()) batch_began_ = now;
  for (const FinishedBatch& finished : finished_) finish(finished);
  finished_.clear();
}

void Execution::begin_time() {
  batch_began_ = context_.clock.now();
  if (times() != nullptr) times()->begin();
}

// Records a batch and its tensors. Where the timeline has been started meanwhile, it does not know
// when they were decided, and leaves them out.
void Execution::trace(const Executing& batch, bool ok, Instant began, Instant ended) {
  Timeline& timeline = *context_.timeline;
  const std::string set = context_.set == nullptr ? "" : context_.set->name;
  TracedBatch traced{set, batch.sequence, base::narrow<std::int64_t>(batch.tensors.size()), began,
                     ended};
  if (times() != nullptr) traced.phases = times()->phases();
  timeline.add(traced);
  for (const LocalTensorPtr& tensor : batch.tensors) {
    if (tensor->decided == Instant{}) continue;
    timeline.add(TracedTensor{.name = set.empty() ? tensor->name : set + "/" + tensor->name,
                              .operation = tensor->signature.operation,
                              .submitted = tensor->submitted,
                              .decided = tensor->decided,
                              .began = std::max(began, tensor->decided),
                              .ended = ended,
                              .waited_for = tensor->waited_for,
                              .batch = batch.sequence,
                              .bytes = tensor->bytes().value(),
                              .ok = ok});
  }
}

void Execution::finish(const FinishedBatch& finished) {
  counters_.batches.fetch_add(1, std::memory_order_relaxed);
  const auto batch = executing(finished.sequence);
  for (const LocalTensorPtr& tensor : batch->tensors) {
    // The members of a group are counted one by one; a barrier has no views and is counted as one.
    counters_.tensors.fetch_add(std::max<std::size_t>(1, tensor->views.size()),
                                std::memory_order_relaxed);
    const auto bytes = base::narrow<std::uint64_t>(tensor->bytes().value());
    counters_.payload_bytes.fetch_add(bytes, std::memory_order_relaxed);
    if (batch->in_place) counters_.in_place_bytes.fetch_add(bytes, std::memory_order_relaxed);
    works_.end(tensor, finished.status.ok() ? tensor->refused : of_tensor(*tensor, finished.status),
               false);
  }
  executing_.erase(batch);
}

Execution::Counts Execution::counts() const {
  return {counters_.batches.load(std::memory_order_relaxed),
          counters_.tensors.load(std::memory_order_relaxed),
          counters_.payload_bytes.load(std::memory_order_relaxed),
          counters_.in_place_bytes.load(std::memory_order_relaxed),
          base::Nanoseconds(counters_.nanoseconds.load(std::memory_order_relaxed))};
}

}  // namespace ronde::runtime
