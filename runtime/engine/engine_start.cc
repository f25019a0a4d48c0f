// SPDX-License-Identifier: Apache-2.0
// Opening an engine: the steps in which ranks wait for each other before the runner starts.
#include <poll.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/host_name.h"
#include "base/log.h"
#include "base/text.h"
#include "collectives/in_host/allreduce.h"
#include "collectives/plugin/table.h"
#include "runtime/engine/engine.h"
#include "runtime/execute/device_start.h"
#include "runtime/negotiate/stopped.h"

namespace ronde::runtime {

using base::Code;
using base::Status;

namespace {

// How often an engine looks whether ranks have entered the board, for which no bell rings.
constexpr auto kEnterPoll = std::chrono::microseconds(200);

std::string why_caller_driven(const base::Config& config, const Job& job) {
  return needs_transport(config, job.shape().hosts() > 1) ? job.transport_bound_to_thread() : "";
}

AgentRunner::Options runner_options(const base::Config& config, const Job& job) {
  AgentRunner::Options options;
  options.caller_driven = !why_caller_driven(config, job).empty();
  options.spin = config.spin;
  // What another host sends takes longer than a yield.
  options.oversubscribed = job.oversubscribed() || job.shape().hosts() > 1;
  options.thread_name = "ronde-" + std::to_string(job.rank());
  return options;
}

std::string cores_text(const Job& job) {
  return "ranks of this host: " + std::to_string(job.local_size()) +
         ", cores that they may use: " + std::to_string(job.cores()) +
         (job.oversubscribed() ? ", so waiting ranks yield at once" : "");
}

}  // namespace

base::Result<std::shared_ptr<Engine>> Engine::open(const OpenJob& open_job,
                                                   const std::vector<std::string>& environment,
                                                   std::shared_ptr<const base::Clock> clock) {
  base::take_standard_descriptors();
  std::vector<std::string> unknown;
  RONDE_ASSIGN_OR_RETURN(auto config, base::Config::from_environment(environment, &unknown));
  const base::Instant deadline = clock->after(config.start_timeout);
  RONDE_ASSIGN_OR_RETURN(auto job, open_job(config, *clock));
  std::shared_ptr<Engine> engine(new Engine(std::move(config), std::move(clock), std::move(job)));
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
    // The other ranks must not wait for one that could not open.
    engine->agent_.failure().fail(entered, entered.rank().value_or(engine->rank_));
    // The runner does not run yet, so this step sends the failure to the other hosts.
    if (!engine->open_) engine->agent_.spread_failure();
    engine->job_->board().set_state(collectives::PresenceState::kDead);
    engine->job_->abandon();
    return entered;
  }
  engine->job_->started();
  engine->start_timeline_of_settings();
  const Status opened = engine->open_sets_of_settings();
  if (!opened.ok()) {
    engine->close().ignore();
    return opened;
  }
  engine->job_->at_exit([open = std::weak_ptr<Engine>(engine)] {
    if (const auto left = open.lock()) left->close_at_exit();
  });
  if (engine->rank_ == 0) {
    for (const std::string& line : base::words_of(engine->job_->table(), "\n")) {
      engine->log_.info(line);
    }
    const std::string note = engine->job_->transport_note();
    if (!note.empty()) engine->log_.info(note);
  }
  engine->log_.info("rank " + std::to_string(engine->rank_) + " of " +
                    std::to_string(engine->size_) + ": data moves over " +
                    engine->agent_.execution().description() + "; " + cores_text(*engine->job_));
  return engine;
}

Engine::Engine(base::Config config, std::shared_ptr<const base::Clock> clock,
               std::unique_ptr<Job> job, std::unique_ptr<Within> within)
    : within_(std::move(within)),
      config_(std::move(config)),
      clock_(std::move(clock)),
      job_(std::move(job)),
      rank_(job_->rank()),
      size_(job_->size()),
      local_rank_(job_->local_rank()),
      local_size_(job_->local_size()),
      memory_(within_ ? within_->job->memory_ : std::make_shared<BoardMemory>(job_->board())),
      small_bytes_(
          collectives::small_vector_bytes(local_size_, job_->board().geometry().slot_bytes)),
      log_(within_ ? within_->job->log_.about("process set '" + within_->identity.name + "'")
                   : base::Log(config_.log_level, rank_)),
      device_(within_ ? within_->job->device_ : nullptr),
      no_device_(within_ ? within_->job->no_device_ : ""),
      opener_(within_ ? within_->job->opener_ : std::this_thread::get_id()),
      caller_driven_(within_ ? within_->job->caller_driven_ : why_caller_driven(config_, *job_)),
      checks_finite_(config_.check == "finite"),
      table_(rank_, size_, config_.check == "memory"),
      quick_(sums_in_rank_order() ? config_.lines_after : 0, [this] { return line_host(); }),
      agent_(*job_, table_, config_, *clock_, log_, within_ ? &within_->identity : nullptr,
             {[this](Completion& completion) { runner_.complete(completion); },
              [this](bool wake) { runner_.notify(wake); },
              [this](base::Bytes bytes) { return allocate_channel(bytes); },
              within_ ? &within_->job->waits() : nullptr,
              within_ ? &within_->job->agent_.timeline() : nullptr,
              [this](std::span<const std::byte> frame) {
                return (within_ ? within_->job->agent_ : agent_).streams().send(frame, true);
              },
              &quick_}),
      own_runner_(within_
                      ? nullptr
                      : std::make_unique<AgentRunner>(agent_, job_->board().doorbell(local_rank_),
                                                      *clock_, runner_options(config_, *job_))),
      runner_(within_ ? within_->job->runner_ : *own_runner_) {}

// Collective: all ranks take part, whatever device they find. It comes before every step that can
// fail on one rank alone, which would leave the others waiting here.
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
    return job_->allgather(mine, "opening the device plug-ins", *clock_, deadline);
  };
  RONDE_ASSIGN_OR_RETURN(auto started, runtime::start_device(std::move(start)));
  device_ = std::move(started.device);
  no_device_ = std::move(started.none);
  device_line_ = started.line;
  agent_.execution().use(device_, started.direct);
  if (rank_ == 0 && !started.line.empty()) log_.log(started.level, started.line);
  return {};
}

Status Engine::enter(base::Instant deadline) {
  job_->board().enter();
  RONDE_RETURN_IF_ERROR(wait_for_ranks(deadline));
  // All ranks are there. What the others waited for the last of them is not taken from NCCL, nor is
  // the way through host memory, which is left where NCCL does not start.
  const base::Instant end = clock_->after(config_.start_timeout);
  RONDE_RETURN_IF_ERROR(start_device(end));
  RONDE_RETURN_IF_ERROR(compare_clocks(end));
  RONDE_RETURN_IF_ERROR(watch_others());
  RONDE_RETURN_IF_ERROR(tune(end));
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
                           base::ranks_phrase(missing) + " (host " + base::host_name() +
                               ") did not open an engine in time: look at their output, or raise "
                               "RONDE_START_TIMEOUT_SECONDS")
          .with_rank(missing.front());
    }
    std::this_thread::sleep_for(kEnterPoll);
  }
}

// The runner does not watch the other ranks yet, so this function polls them while it
// waits.
Status Engine::tune(base::Instant deadline) {
  constexpr int kWaitsPerLook = 256;
  int waits = 0;
  return agent_.execution().tune([&]() -> Status {
    std::this_thread::yield();
    if (++waits % kWaitsPerLook != 0) return {};
    if (const auto trouble = trouble_at_start()) return *trouble;
    if (clock_->now() >= deadline) {
      return not_tuned();
    }
    for (const PeerWatch& peer : peers_) {
      pollfd watched{peer.descriptor.get(), POLLIN, 0};
      if (::poll(&watched, 1, 0) > 0) {
        // A rank that could not open says so on the board before it closes its socket.
        if (const auto trouble = trouble_at_start()) return *trouble;
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

Status Engine::watch_others() {
  RONDE_ASSIGN_OR_RETURN(peers_, job_->watch_peers());
  for (const PeerWatch& peer : peers_) {
    agent_.watch(peer.descriptor.get(), [this, rank = peer.rank] { agent_.on_end_of(rank); });
    RONDE_RETURN_IF_ERROR(runner_.watch(peer.descriptor.get()));
  }
  const std::string note = job_->watch_note();
  if (local_rank_ == 0 && !note.empty()) log_.warning(note);
  const collectives::Visitors visitors = job_->visitors();
  if (visitors.fd < 0) return {};
  agent_.watch(visitors.fd, [this, visitors] {
    if (visitors.answer()) runner_.watch(visitors.fd).ignore();
  });
  return runner_.watch(visitors.fd);
}

}  // namespace ronde::runtime
