// SPDX-License-Identifier: Apache-2.0
// A job whose ranks are engines in this process: memory instead of MPI, the same board protocol.
// The whole runtime is tested with it, and a job of one is one of it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/mutex.h"
#include "base/status.h"
#include "collectives/local_transport.h"
#include "runtime/job.h"

namespace ronde::runtime {

// What the engines of the job share. Thread safety: join() may be called from any thread.
class LocalJob : public std::enable_shared_from_this<LocalJob> {
 public:
  static base::Result<std::shared_ptr<LocalJob>> create(std::int32_t size,
                                                        const collectives::FaultPlan& faults = {});

  [[nodiscard]] std::int32_t size() const { return size_; }

  // Waits until every rank has joined with the same shared settings.
  base::Result<std::unique_ptr<Job>> join(std::int32_t rank, const base::Config& config,
                                          const base::Clock& clock);

 private:
  explicit LocalJob(std::int32_t size) : size_(size) {}
  base::Status make_board(const base::Config& config) RONDE_REQUIRES(mutex_);
  [[nodiscard]] bool all_joined() const RONDE_REQUIRES(mutex_);
  base::Status wait_for_all(base::Nanoseconds timeout) RONDE_REQUIRES(mutex_);

  const std::int32_t size_;
  base::Mutex mutex_;
  std::condition_variable_any joined_;
  std::vector<std::optional<std::string>> settings_ RONDE_GUARDED_BY(mutex_);
  base::Status failure_
      RONDE_GUARDED_BY(mutex_);  // of the ranks' meeting: nobody can join after it
  std::shared_ptr<collectives::SharedMemory> memory_ RONDE_GUARDED_BY(mutex_);
  collectives::EventFds event_fds_ RONDE_GUARDED_BY(mutex_);
  std::shared_ptr<collectives::LocalHub> hub_ RONDE_GUARDED_BY(mutex_);
};

}  // namespace ronde::runtime
