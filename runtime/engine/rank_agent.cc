// SPDX-License-Identifier: Apache-2.0
// The agent's step and its end: failures, decisions, and finishing works. Its other parts have
// files of their own: rank_agent_announcing.cc, rank_agent_executing.cc, rank_agent_stalls.cc.
#include "runtime/engine/rank_agent.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/host_name.h"
#include "collectives/kernels/floating_point_mode.h"
#include "collectives/plane/plane.h"
#include "runtime/negotiate/relay.h"

namespace ronde::runtime {

using base::Code;
using base::Instant;
using base::kNever;
using base::MutexLock;
using base::Result;
using base::Status;

namespace {

// How often the executor retries a batch that cannot go on before it returns: about a microsecond.
// Not where that asks a transport, which costs as much each time.
constexpr int kWatch = 16;

// The messages of a batch of so many bytes are there about as soon as a thread has gone to sleep
// and been woken.
constexpr std::int64_t kSoon = std::int64_t{64} << 10;

// How many failed works are remembered until a caller asks for their results.
constexpr std::size_t kFailedWorks = 1024;

// How often the device is polled, because one that has failed does not ring.
constexpr base::Nanoseconds kDevicePoll = std::chrono::milliseconds(10);

}  // namespace

RankAgent::RankAgent(Job& job, TensorTable& table, const base::Config& config,
                     const base::Clock& clock, const base::Log& log, Hooks hooks)
    : job_(job),
      board_(job.board()),
      table_(table),
      config_(config),
      clock_(clock),
      log_(log),
      hooks_(std::move(hooks)),
      announcements_(board_.announce_writer()),
      decisions_(board_.decision_reader(kLeader)),
      links_(job.take_links()),
      control_node_(make_control_node()),
      workspace_(std::make_unique<collectives::Workspace>()),
      transport_(job.take_transport()),
      executor_(make_plane(), job.rank(), job.oversubscribed() || transport_ ? 0 : kWatch) {}

RankAgent::~RankAgent() { keep_what_mpi_may_write(); }

// After a failure MPI may still write into the segments of unfinished requests and cannot be asked
// to stop, so their memory is never freed.
void RankAgent::keep_what_mpi_may_write() {
  if (transport_ == nullptr || !transport_->writes_after_destruction()) return;
  drop_batches();
  [[maybe_unused]] auto* const kept = workspace_.release();
}

std::unique_ptr<collectives::DataPlane> RankAgent::make_plane() {
  if (job_.shape().hosts() > 1) {
    return collectives::make_two_level_plane(board_, job_.probes(), job_.shape(), *transport_,
                                             *workspace_, config_);
  }
  // On one host a named algorithm counts every rank as a host.
  if (const auto* const forced = collectives::algorithm_of(config_.algorithm)) {
    return collectives::make_message_plane(*transport_, *workspace_, config_.segment_bytes,
                                           *forced);
  }
  return collectives::make_in_host_plane(board_, job_.probes());
}

std::unique_ptr<ControlNode> RankAgent::make_control_node() {
  if (board_.rank() != kLeader) return nullptr;
  if (job_.rank() != kCoordinator) {
    return std::make_unique<Relay>(board_, job_.shape(), job_.host(), *links_);
  }
  return std::make_unique<Coordinator>(board_, job_.shape(), links_.get(), config_, clock_);
}

// ---- Agent ----

int RankAgent::do_work() {
  int work = 0;
  work_left_ = true;  // unless step() returns without an error
  if (!failed()) {
    const collectives::ScopedFloatingPointMode mode;
    try {
      work = check_failure() ? 1 : stepped(step());
    } catch (const std::exception&) {
      // Only a lack of memory throws in here. This thread must go on to give back the agent's role,
      // so the job fails, which frees memory, and the next step can spread the failure.
      fail_for_memory();
      drop_batches();
      work = 1;
    }
  }
  // After a failure no work is left.
  const bool more = work_left_ && !failed();
  if (more != more_.load(std::memory_order_relaxed)) more_.store(more, std::memory_order_seq_cst);
  return work;
}

// What a step did; its error fails the job.
int RankAgent::stepped(const Result<int>& worked) {
  if (worked.ok()) return *worked;
  fail(worked.status(), worked.status().rank().value_or(-1));
  check_failure();
  return 1;
}

void RankAgent::want_rings(bool wanted) {
  rings_wanted_ = wanted;
  executor_.want_rings(wanted);
  if (wanted) return;  // the next step watches
  // Where that fails, a message wakes a thread too many.
  if (links_watched_.exchange(false, std::memory_order_acq_rel)) {
    (void)hooks_.unwatch(links_fd());
  }
  if (transport_watched_.exchange(false, std::memory_order_acq_rel)) {
    (void)hooks_.unwatch(transport_fd());
  }
}

bool RankAgent::needs_polling() {
  return !failed() && transport_ != nullptr && transport_->needs_polling() &&
         transport_->outstanding() > 0;
}

bool RankAgent::awaits_descriptor() {
  return transport_fd() >= 0 && !failed() && transport_->outstanding() > 0 && executor_.busy() &&
         executor_.current().bytes().value() > kSoon;
}

Instant RankAgent::next_deadline() {
  if (failed()) return kNever;
  // Submitting does not wake a sleeping driver, so it looks for late tensors from time to time.
  const Instant now = clock_.about_now();
  const base::Nanoseconds patience = config_.stall_warning / 4;
  Instant next = patience >= kNever - now ? kNever : now + patience;
  next = std::min(next, next_stall());
  if (executor_.awaits_device()) next = std::min(next, now + kDevicePoll);
  if (held_back_) next = std::min(next, held_back_->until);
  if (control_node_) next = std::min(next, control_node_->next_deadline());
  return next;
}

// A message of another host has arrived, or the process of another rank has ended.
void RankAgent::on_event(int fd) {
  if (fd == links_fd()) {
    links_watched_.store(false, std::memory_order_release);
    return;
  }
  if (fd == transport_fd()) {
    transport_watched_.store(false, std::memory_order_release);
    return;
  }
  for (const auto& [pidfd, rank] : watched_) {
    if (pidfd != fd) continue;
    const std::int32_t position = job_.shape().position_of(rank);
    const collectives::Presence presence = board_.presence(position);
    if (presence.state == collectives::PresenceState::kClosed) return;
    board_.set_state(position, collectives::PresenceState::kDead);
    std::string text = "rank " + std::to_string(rank) + " (host " + base::host_name() + ", pid " +
                       std::to_string(presence.pid) +
                       ") died: its process ended without closing its engine";
    if (!presence.activity.empty()) text += "; it was last " + presence.activity;
    fail(Status::error(Code::kPeerFailed, text), rank);
    return;
  }
}

// ---- failing ----

void RankAgent::fail(const Status& why, std::int32_t culprit) {
  collectives::FailureRecord record;
  record.culprit = culprit;
  record.reporter = job_.rank();
  record.code = why.code();
  record.text = why.message();
  record.place = why.place();
  board_.fail(record);
}

void RankAgent::fail_for_memory() {
  board_.fail({-1, job_.rank(), Code::kOutOfMemory, "out of memory", "", true});
}

bool RankAgent::check_failure() {
  if (!board_.failed()) return false;
  const auto record = board_.failure();
  if (!record) return false;
  const Status why = Status::remote(record->code, record->text, record->place, record->culprit);
  // The other hosts are notified first, because abandoning a device may take seconds.
  log_.error(why.message());
  if (links_) links_->send_failure(*record);
  // Then the caller's memory is released, and only then are waiters notified: they may free it, or
  // end the process.
  drop_batches(why.message());
  job_.abandon();
  if (transport_) transport_->abandon();
  {
    const MutexLock lock(failed_works_mutex_);
    failure_ = why;
  }
  table_.shut(why);
  failed_.store(true, std::memory_order_release);
  for (const LocalTensorPtr& tensor : table_.remove_all(true)) end(tensor, why);
  complete_once(departed_);
  complete_once(drained_);
  return true;
}

// ---- stepping ----

Result<int> RankAgent::step() {
  RONDE_RETURN_IF_ERROR(flush_announcements());
  int work = 0;
  if (control_node_) {
    RONDE_ASSIGN_OR_RETURN(const auto stepped, step_control_node());
    work += stepped;
  }
  RONDE_ASSIGN_OR_RETURN(const auto read, read_decisions());
  RONDE_ASSIGN_OR_RETURN(const auto executed, execute());
  work += read + executed;
  transport_moves_ = false;
  RONDE_ASSIGN_OR_RETURN(const auto arrived, arm_transport(work));
  work += arrived;
  check_stalls();
  if (drain_wanted_.load(std::memory_order_acquire) && table_.empty()) complete_once(drained_);
  // No doorbell rings for these: a batch that was interrupted although it could go on, and tensors
  // that the coordinator held back until the last batch had finished.
  if (control_node_) control_node_->hold_devices_back(executor_.device_full());
  work_left_ = batch_can_go_on_ || transport_moves_ ||
               (control_node_ && !executor_.busy() && control_node_->waits_for_idle());
  return work;
}

Result<int> RankAgent::step_control_node() {
  control_node_->hold_devices_back(executor_.device_full());
  auto stepped = control_node_->step(!executor_.busy());
  RONDE_RETURN_IF_ERROR(stepped.status());
  control_drained_.store(control_node_->drained(), std::memory_order_release);
  // Everything that had arrived is read: only new messages wake the background thread.
  if (rings_wanted_ && links_ && !links_watched_.exchange(true, std::memory_order_acq_rel)) {
    RONDE_RETURN_IF_ERROR(hooks_.watch(links_->fd()));
  }
  return stepped;
}

Result<int> RankAgent::read_decisions() {
  int work = 0;
  while (true) {
    RONDE_ASSIGN_OR_RETURN(const auto bytes, decisions_.poll());
    if (!bytes.has_value()) return work;
    control_bytes_.fetch_add(bytes->size(), std::memory_order_relaxed);
    RONDE_ASSIGN_OR_RETURN(const auto decision, decode_decision(*bytes));
    RONDE_RETURN_IF_ERROR(on_decision(decision));
    ++work;
  }
}

Status RankAgent::on_decision(const Decision& decision) {
  if (const auto* batch = std::get_if<BatchDecision>(&decision)) return on_batch(*batch);
  if (const auto* bind = std::get_if<BindDecision>(&decision)) return table_.bind(*bind);
  if (const auto* evict = std::get_if<EvictDecision>(&decision)) {
    table_.evict(evict->entry);
  } else if (const auto* error = std::get_if<ErrorDecision>(&decision)) {
    const LocalTensorPtr tensor = table_.remove_waiting(error->name);
    if (tensor) end(tensor, Status::remote(error->code, error->text, error->place, error->rank));
  } else if (const auto* notice = std::get_if<NoticeDecision>(&decision)) {
    on_notice(*notice);
  } else if (const auto* departed = std::get_if<DepartedDecision>(&decision)) {
    on_departed(*departed);
  }
  return {};
}

// Says of the error of a tensor that comes too late whether the rank that has left has taken fewer
// steps. Any thread.
Status RankAgent::with_steps(const Status& why, const LocalTensor& tensor) const {
  const auto left = StepNumber::of_word(left_step_.load(std::memory_order_acquire));
  if (why.code() != Code::kClosed || !left.exists()) return why;
  const std::int32_t rank = left_rank_.load(std::memory_order_relaxed);
  const std::string text = steps_behind(rank, left, job_.rank(), tensor.step);
  if (text.empty()) return why;
  return Status::remote(why.code(), why.message() + ": " + text + kOneLeftOut, why.place(), rank);
}

// Without the departed rank nothing can be agreed, so tensors that are in no batch fail now.
void RankAgent::on_departed(const DepartedDecision& departed) {
  const std::int32_t rank = departed.rank;
  if (left_step_.load(std::memory_order_relaxed) == 0 && rank != job_.rank()) {
    left_rank_.store(rank, std::memory_order_relaxed);
    left_step_.store(departed.step.word(), std::memory_order_release);
  }
  const Status why =
      Status::remote(Code::kClosed,
                     "rank " + std::to_string(rank) +
                         " has closed its engine, so no operation can complete any more",
                     "", rank);
  table_.shut(why);
  for (const LocalTensorPtr& tensor : table_.remove_all(false)) {
    end(tensor, with_steps(why, *tensor));
  }
  // Once its leader or the coordinator has departed, no further decision arrives here, so this rank
  // must not wait for its own departure.
  if (rank == job_.rank() || rank == kCoordinator || rank == job_.rank_at(kLeader)) {
    complete_once(departed_);
  }
}

// The name is released before the waiter is notified, so that it may submit the name again at once.
void RankAgent::end(const LocalTensorPtr& tensor, const Status& status) {
  table_.remove(*tensor);
  tensor->ready.clear();
  // The stall checks may keep the tensor for long; its result belongs to the caller alone.
  const std::shared_ptr<Work> work = std::move(tensor->work);
  if (!status.ok() && !failed()) remember_failed(*work, status);
  work->status = status;
  if (work->of_device) complete_once(work->issued);
  hooks_.complete(work->completion);
}

void RankAgent::complete_once(Completion& completion) {
  if (!completion.done()) hooks_.complete(completion);
}

// ---- closing ----

// Called before the work is done: afterwards the thread that waits for it owns it.
void RankAgent::remember_failed(Work& work, const Status& status) {
  const MutexLock lock(failed_works_mutex_);
  if (drain_wanted_.load(std::memory_order_acquire)) {
    if (failed_works_++ == 0) first_failed_ = status;
    return;
  }
  // Callers ask for most results at once; where a program never asks, the first are enough.
  if (reports_.size() >= kFailedWorks) {
    std::erase_if(reports_, [](const FailedWork& one) { return one.heard->load(); });
  }
  if (reports_.size() >= kFailedWorks) return;
  work.heard = std::make_shared<std::atomic<bool>>(false);
  reports_.push_back({work.heard, status});
}

FailedWorks RankAgent::failed_works() const {
  const MutexLock lock(failed_works_mutex_);
  FailedWorks result{failed_works_, 0, first_failed_};
  for (auto one = reports_.rbegin(); one != reports_.rend(); ++one) {
    if (one->heard->load()) continue;
    ++result.unheard;
    result.first = one->status;
  }
  return result;
}

void RankAgent::close() {
  close_device();
  drop_batches();
  keep_what_mpi_may_write();
  board_.set_state(collectives::PresenceState::kClosed);
  if (!control_node_) board_.doorbell(kLeader).ring();
  if (links_ && !failed()) links_->send_good_bye();
  control_node_.reset();
  links_.reset();
  // Last, because UCX waits here for other ranks, and those of the hosts below wait for the link.
  transport_.reset();
}

Status RankAgent::failure() const {
  const MutexLock lock(failed_works_mutex_);
  return failure_;
}

Statistics RankAgent::statistics() const {
  Statistics result;
  result.batches = batches_.load(std::memory_order_relaxed);
  result.tensors = tensors_.load(std::memory_order_relaxed);
  result.payload_bytes = payload_bytes_.load(std::memory_order_relaxed);
  result.control_bytes = control_bytes_.load(std::memory_order_relaxed);
  result.full_requests = full_requests_.load(std::memory_order_relaxed);
  result.execution = base::Nanoseconds(execution_nanoseconds_.load(std::memory_order_relaxed));
  result.planned_requests = planned_requests_.load(std::memory_order_relaxed);
  return result;
}

}  // namespace ronde::runtime
