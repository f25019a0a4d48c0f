// SPDX-License-Identifier: Apache-2.0
// The engine: see engine.h.
#include "runtime/engine.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/host_name.h"
#include "collectives/host_allreduce.h"
#include "runtime/device_check.h"
#include "runtime/device_start.h"
#include "runtime/stopped.h"
#include "runtime/submission.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

// Beyond the stall deadline, which ends every work, a waiter gives the verdict this long to arrive.
constexpr base::Nanoseconds kVerdictMargin = std::chrono::seconds(10);

// While ranks enter the board: nobody rings for that.
constexpr auto kEnterPoll = std::chrono::microseconds(200);

// How long an engine waits for the coordinator's good-bye once nothing is in flight.
constexpr base::Nanoseconds kFarewell = std::chrono::seconds(5);

// Inside a host no operation needs MPI, unless it is told to.
std::string why_caller_driven(const base::Config& config, const Job& job) {
  const bool needs_transport = job.shape().hosts() > 1 || config.algorithm != "auto";
  return needs_transport ? job.transport_bound_to_thread() : "";
}

AgentRunner::Options runner_options(const base::Config& config, const Job& job) {
  AgentRunner::Options options;
  options.caller_driven = !why_caller_driven(config, job).empty();
  options.spin = config.spin;
  options.oversubscribed = job.oversubscribed();
  options.thread_name = "ronde-" + std::to_string(job.rank());
  return options;
}

std::string cores_text(const Job& job) {
  return "ranks of this host: " + std::to_string(job.local_size()) +
         ", cores that they may use: " + std::to_string(job.cores()) +
         (job.oversubscribed() ? ", so waiting ranks yield at once" : "");
}

}  // namespace

Result<std::shared_ptr<Engine>> Engine::open(const OpenJob& open_job,
                                             const std::vector<std::string>& environment,
                                             std::shared_ptr<const base::Clock> clock) {
  std::vector<std::string> unknown;
  auto config = base::Config::from_environment(environment, &unknown);
  RONDE_RETURN_IF_ERROR(config.status());
  const base::Instant deadline = clock->after(config->start_timeout);
  auto job = open_job(*config, *clock);
  RONDE_RETURN_IF_ERROR(job.status());
  std::shared_ptr<Engine> engine(new Engine(std::move(*config), std::move(clock), std::move(*job)));
  if (engine->rank() == 0) {
    for (const std::string& name : unknown) {
      engine->log_.warning("the environment sets " + name + ", which is no setting of Ronde");
    }
    if (!engine->caller_driven_.empty()) {
      engine->log_.warning(engine->caller_driven_ +
                           ", so operations go on only inside calls of the thread that opened the "
                           "engine; MPI_Init_thread with MPI_THREAD_SERIALIZED lets them overlap");
    }
  }
  const Status entered = engine->enter(deadline);
  if (!entered.ok()) {
    // The others must not go on with a rank that is not there.
    engine->agent_.fail(entered, entered.rank().value_or(engine->rank_));
    // Nobody else drives yet; this tells the other hosts.
    if (!engine->open_) [[maybe_unused]]
      const int told = engine->agent_.do_work();
    engine->job_->board().set_state(collectives::PresenceState::kDead);
    engine->job_->abandon();
    return entered;
  }
  if (engine->rank_ == 0) engine->log_.info(engine->job_->table());
  engine->log_.info("rank " + std::to_string(engine->rank_) + " of " +
                    std::to_string(engine->size_) + ": data moves over " +
                    engine->agent_.data_plane() + "; " + cores_text(*engine->job_));
  return engine;
}

Engine::Engine(base::Config config, std::shared_ptr<const base::Clock> clock,
               std::unique_ptr<Job> job)
    : config_(std::move(config)),
      clock_(std::move(clock)),
      job_(std::move(job)),
      rank_(job_->rank()),
      size_(job_->size()),
      local_rank_(job_->local_rank()),
      local_size_(job_->local_size()),
      memory_(std::make_shared<BoardMemory>(job_->board())),
      small_bytes_(
          collectives::small_vector_bytes(local_size_, job_->board().geometry().slot_bytes)),
      log_(config_.log_level, rank_),
      caller_driven_(why_caller_driven(config_, *job_)),
      table_(rank_),
      agent_(*job_, table_, config_, *clock_, log_,
             {[this](Completion& completion) { runner_.complete(completion); },
              [this](bool wake) { runner_.notify(wake); },
              [this](int fd) { return runner_.watch(fd); }}),
      runner_(agent_, job_->board().doorbell(local_rank_), *clock_,
              runner_options(config_, *job_)) {}

Engine::~Engine() {
  if (process_.is_mine()) {
    if (open_) close().ignore();
    // It rings the runner, which goes first.
    agent_.close_device();
  } else if (device_ != nullptr) {
    device_->forget();
  }
}

// All ranks take part, whatever they find. Before anything that can fail on one of them alone.
Status Engine::start_device(base::Instant deadline) {
  DeviceStart start;
  start.place = collectives::plugin_place(config_.plugin_path, collectives::own_library_folder());
  start.host.rank = rank_;
  start.host.size = size_;
  start.host.rank_on_host = local_rank_;
  start.host.size_of_host = local_size_;
  start.host.ring = [this] { runner_.notify(true); };
  start.host.log = [this](base::LogLevel level, std::string_view text) { log_.log(level, text); };
  start.exchange = [&](std::span<const std::byte> mine) {
    return job_->allgather(mine, *clock_, deadline);
  };
  auto started = runtime::start_device(std::move(start));
  RONDE_RETURN_IF_ERROR(started.status());
  device_ = std::move(started->device);
  no_device_ = std::move(started->none);
  agent_.use(device_, started->direct);
  if (rank_ == 0 && !started->line.empty()) log_.log(started->level, started->line);
  return {};
}

Status Engine::enter(base::Instant deadline) {
  job_->board().enter();
  RONDE_RETURN_IF_ERROR(wait_for_ranks(deadline));
  RONDE_RETURN_IF_ERROR(start_device(deadline));
  RONDE_RETURN_IF_ERROR(watch_peers());
  RONDE_RETURN_IF_ERROR(tune(deadline));
  RONDE_RETURN_IF_ERROR(runner_.start());
  open_ = true;
  return {};
}

std::optional<Status> Engine::trouble_at_start() const {
  if (const auto failure = job_->board().failure()) {
    return Status::remote(failure->code, failure->text, failure->place, failure->culprit);
  }
  for (std::int32_t position = 0; position < local_size_; ++position) {
    const auto state = job_->board().state(position);
    if (state == collectives::PresenceState::kDead) {
      const std::int32_t rank = job_->rank_at(position);
      return Status::error(Code::kPeerFailed, "rank " + std::to_string(rank) + " (host " +
                                                  base::host_name() +
                                                  ") could not open its engine: look at its output")
          .with_rank(rank);
    }
  }
  return std::nullopt;
}

Status Engine::wait_for_ranks(base::Instant deadline) {
  while (true) {
    if (const auto trouble = trouble_at_start()) return *trouble;
    std::vector<std::int32_t> missing;
    for (std::int32_t position = 0; position < local_size_; ++position) {
      if (job_->board().state(position) == collectives::PresenceState::kAbsent) {
        missing.push_back(job_->rank_at(position));
      }
    }
    if (missing.empty()) return {};
    if (clock_->now() >= deadline) {
      return Status::error(Code::kDeadline,
                           ranks_phrase(missing) + " (host " + base::host_name() +
                               ") did not open an engine in time: look at their output, or raise "
                               "RONDE_START_TIMEOUT_SECONDS")
          .with_rank(missing.front());
    }
    std::this_thread::sleep_for(kEnterPoll);
  }
}

// Nobody watches the other processes for this rank yet, so it looks itself while it waits.
Status Engine::tune(base::Instant deadline) {
  constexpr int kWaitsPerLook = 256;
  int waits = 0;
  return agent_.tune([&]() -> Status {
    std::this_thread::yield();
    if (++waits % kWaitsPerLook != 0) return {};
    if (const auto trouble = trouble_at_start()) return *trouble;
    if (clock_->now() >= deadline) {
      return not_tuned();
    }
    for (const PeerWatch& peer : peers_) {
      pollfd watched{peer.pidfd.get(), POLLIN, 0};
      if (::poll(&watched, 1, 0) > 0) {
        return Status::error(Code::kPeerFailed, "rank " + std::to_string(peer.rank) + " (host " +
                                                    base::host_name() +
                                                    ") died while the engines were opening")
            .with_rank(peer.rank);
      }
    }
    return {};
  });
}

Status Engine::not_tuned() const {
  std::string stopped;
  std::int32_t culprit = -1;
  for (std::int32_t position = local_size_ - 1; position >= 0; --position) {
    const auto presence = job_->board().presence(position);
    if (position == local_rank_ || !is_stopped(presence)) continue;
    culprit = job_->rank_at(position);
    stopped = stopped_text(culprit, presence);
  }
  return Status::error(Code::kDeadline,
                       "the ranks of host " + base::host_name() +
                           " did not finish the probe of the board in time: look at their output, "
                           "or raise RONDE_START_TIMEOUT_SECONDS" +
                           stopped)
      .with_rank(culprit);
}

Status Engine::watch_peers() {
  auto peers = job_->watch_peers();
  RONDE_RETURN_IF_ERROR(peers.status());
  peers_ = std::move(*peers);
  for (const PeerWatch& peer : peers_) {
    agent_.watch(peer.pidfd.get(), peer.rank);
    RONDE_RETURN_IF_ERROR(runner_.watch(peer.pidfd.get()));
  }
  if (agent_.links_fd() >= 0) RONDE_RETURN_IF_ERROR(runner_.watch(agent_.links_fd()));
  return {};
}

Status Engine::usable() const {
  if (process_.is_mine()) return {};
  return Status::error(
      Code::kUnsupported,
      "this engine was opened by the parent process: a forked child cannot use it");
}

Status Engine::may_drive() const {
  RONDE_RETURN_IF_ERROR(usable());
  if (caller_driven_.empty() || std::this_thread::get_id() == opener_) return {};
  return Status::error(Code::kUnsupported,
                       caller_driven_ +
                           ", so only the thread that opened the engine may wait or close; start "
                           "MPI with MPI_THREAD_SERIALIZED");
}

Result<Engine::WorkPtr> Engine::submit(Submission submission) {
  RONDE_RETURN_IF_ERROR(usable());
  const bool will_wait = submission.will_wait;
  const auto checked = check_submission(std::move(submission), rank_, size_);
  RONDE_RETURN_IF_ERROR(checked.status());
  const LocalTensorPtr& tensor = *checked;
  RONDE_RETURN_IF_ERROR(check_places(*tensor, device_.get(), no_device_));
  tensor->signature.on_board =
      may_reduce_in_place(*tensor, job_->board().arena(local_rank_), small_bytes_);
  tensor->submitted = clock_->now();
  tensor->work = std::make_shared<Work>();
  tensor->work->name = tensor->name;
  tensor->work->of_device = on_device(tensor->signature);
  const auto ticket = table_.insert(tensor);
  RONDE_RETURN_IF_ERROR(ticket.status());
  if (will_wait) runner_.will_wait();
  const Status announced = agent_.announce(*tensor, *ticket, !will_wait);
  // The others would wait for a tensor that they never hear of.
  if (!announced.ok()) agent_.fail(announced, rank_);
  return tensor->work;
}

Result<std::unique_ptr<BoardBuffer>> Engine::allocate(base::Bytes bytes) {
  RONDE_RETURN_IF_ERROR(usable());
  RONDE_RETURN_IF_ERROR(agent_.failure());
  return BoardBuffer::allocate(memory_, bytes);
}

Result<bool> Engine::wait(Work& work, base::Nanoseconds timeout) {
  if (!process_.is_mine()) {
    if (work.completion.done()) return true;
    return usable();
  }
  RONDE_RETURN_IF_ERROR(may_drive());
  return drive(work.completion, timeout);
}

// Even if it is done: a submit that promised to wait has silenced the bell, and the runner makes up
// for it.
bool Engine::drive(Completion& completion, base::Nanoseconds timeout) {
  waiting_threads_.fetch_add(1, std::memory_order_acq_rel);
  const bool done = runner_.wait(completion, clock_->after(timeout));
  waiting_threads_.fetch_sub(1, std::memory_order_acq_rel);
  return done;
}

Status Engine::wait(Work& work, void* stream) {
  if (!work.of_device) {
    return Status::error(Code::kInvalidArgument,
                         "'" + work.name +
                             "' is in host memory, which no stream can wait for: wait for it "
                             "without one");
  }
  RONDE_RETURN_IF_ERROR(may_drive());
  const Status usable = device_->check_stream(stream);
  if (!usable.ok() && !work.completion.done()) {
    return Status::error(usable.code(), "'" + work.name + "': " + usable.message());
  }
  const bool issued = drive(work.issued, config_.stall_failure + kVerdictMargin);
  // It is late, or there is nothing on the device to wait for.
  if (!issued || work.on_device == nullptr) return wait(work);
  return work.on_device->wait_on(stream);
}

Status Engine::wait(Work& work) {
  auto done = wait(work, config_.stall_failure + kVerdictMargin);
  RONDE_RETURN_IF_ERROR(done.status());
  if (*done) return work.status;
  // The stall checks should have ended it. The caller's memory must be free when this returns.
  Status late = Status::error(Code::kDeadline,
                              "'" + work.name + "' did not end before RONDE_STALL_FAILURE_SECONDS");
  agent_.fail(late, -1);
  runner_.notify(true);
  done = wait(work, kFarewell);
  RONDE_RETURN_IF_ERROR(done.status());
  return *done ? work.status : late;
}

Status Engine::close() {
  RONDE_RETURN_IF_ERROR(may_drive());
  if (!std::exchange(open_, false)) return Status::error(Code::kClosed, "the engine is closed");
  table_.shut(Status::error(Code::kClosed, "this engine has been closed"));
  Status left = leave();
  // Every work is done, so threads that waited for one are on their way out.
  const base::Instant deadline = clock_->after(kFarewell);
  while (waiting_threads_.load(std::memory_order_acquire) > 0 && clock_->now() < deadline) {
    std::this_thread::sleep_for(kEnterPoll);
  }
  runner_.stop();
  agent_.close();
  peers_.clear();
  if (agent_.failed()) return left;  // the transport has been given up already
  Status closed = job_->close();
  return left.ok() ? closed : left;
}

// Says good-bye to the coordinator: first that nothing more will be submitted, and once nothing is
// in flight here, or the deadline has passed, that this rank waits for nothing either.
Status Engine::leave() {
  agent_.want_drained();
  agent_.announce(ClosingAnnouncement{false}, true).ignore();
  runner_.notify(false);
  const bool drained = runner_.wait(agent_.drained(), clock_->after(config_.shutdown_timeout));
  agent_.announce(ClosingAnnouncement{true}, true).ignore();
  runner_.notify(false);
  const base::Nanoseconds patience = std::min(kFarewell, config_.shutdown_timeout);
  const bool departed = runner_.wait(agent_.departed(), clock_->after(patience));
  const base::Instant deadline = clock_->after(patience);
  while (!agent_.lead_drained() && clock_->now() < deadline && !agent_.failed()) {
    Completion nothing;  // to drive the agent for a moment
    [[maybe_unused]] const bool never = runner_.wait(nothing, clock_->after(kEnterPoll));
  }
  RONDE_RETURN_IF_ERROR(fail_what_is_left(departed));
  Status failure = agent_.failure();
  if (!failure.ok()) return failure;
  const auto [first, count] = agent_.failed_works();
  if (count == 0) return {};
  const std::string why = drained ? "" : " (RONDE_SHUTDOWN_TIMEOUT_SECONDS passed)";
  return Status::error(first.code(), std::to_string(count) +
                                         " operations failed while the engine closed" + why +
                                         "; the first: " + first.message());
}

// Without an answer of the coordinator, or with a batch that does not move, the works must end all
// the same: the caller's memory goes away. The peers in that batch hear of it.
Status Engine::fail_what_is_left(bool departed) {
  if ((departed && table_.empty()) || agent_.failed()) return {};
  const std::string subject = "rank " + std::to_string(rank_) + " closes its engine, but ";
  if (departed) {
    agent_.fail(
        Status::error(Code::kDeadline,
                      subject + "a batch did not end (RONDE_SHUTDOWN_TIMEOUT_SECONDS passed)"),
        rank_);
  } else {
    agent_.fail(
        Status::error(Code::kDeadline, subject + "rank 0, the coordinator, does not answer"), 0);
  }
  runner_.notify(true);
  if (runner_.wait(departed ? agent_.drained() : agent_.departed(), clock_->after(kFarewell))) {
    return {};
  }
  return Status::error(Code::kDeadline, "the engine did not stop in time");
}

Statistics Engine::statistics() const {
  Statistics result = agent_.statistics();
  result.background_wakes = runner_.counters().background_wakeups;
  return result;
}

}  // namespace ronde::runtime
