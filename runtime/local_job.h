// SPDX-License-Identifier: Apache-2.0
// A job whose ranks are engines in this process: memory instead of MPI, the same board protocol.
// The whole runtime is tested with it, and a job of one is one of it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/mutex.h"
#include "base/status.h"
#include "collectives/job_shape.h"
#include "collectives/local_transport.h"
#include "runtime/host_links.h"
#include "runtime/host_tree.h"
#include "runtime/job.h"

namespace ronde::runtime {

// What the engines of the job share. Thread safety: join() may be called from any thread.
class LocalJob : public std::enable_shared_from_this<LocalJob> {
 public:
  // All ranks share one host.
  static base::Result<std::shared_ptr<LocalJob>> create(std::int32_t size);
  // Ranks that share no host have boards of their own, and their leaders talk over socket pairs,
  // as leaders of processes do over TCP. fan_in: of the tree of the hosts. hub: carries messages
  // between these ranks; without one the job makes its own.
  static base::Result<std::shared_ptr<LocalJob>> create(
      const collectives::JobShape& shape, std::int32_t fan_in = HostTree::kFanIn,
      std::shared_ptr<collectives::LocalHub> hub = nullptr);

  [[nodiscard]] const collectives::JobShape& shape() const { return shape_; }

  // Waits until every rank has joined with the same shared settings.
  base::Result<std::unique_ptr<Job>> join(std::int32_t rank, const base::Config& config,
                                          const base::Clock& clock);

  // Every rank's bytes of round `round`, which each rank counts by itself. By ranks that have
  // joined.
  base::Result<std::vector<std::vector<std::byte>>> allgather(std::int32_t rank,
                                                              std::uint64_t round,
                                                              std::span<const std::byte> mine,
                                                              base::Nanoseconds timeout);

 private:
  struct Round {
    std::vector<std::optional<std::vector<std::byte>>> parts;  // by rank
    std::int32_t read = 0;                                     // by so many ranks
  };
  // What the ranks of one host share.
  struct Host {
    collectives::EventFds event_fds;
    std::shared_ptr<collectives::SharedMemory> memory;
    HostLinks links;  // until the leader takes them
  };

  explicit LocalJob(const collectives::JobShape& shape) : shape_(shape) {}
  base::Status make_hosts(std::int32_t fan_in) RONDE_REQUIRES(mutex_);
  base::Status make_boards(const base::Config& config) RONDE_REQUIRES(mutex_);
  base::Result<std::unique_ptr<Job>> make_member(std::int32_t rank) RONDE_REQUIRES(mutex_);
  [[nodiscard]] bool all_joined() const RONDE_REQUIRES(mutex_);
  base::Status wait_for_all(base::Nanoseconds timeout) RONDE_REQUIRES(mutex_);

  const collectives::JobShape shape_;
  base::Mutex mutex_;
  std::condition_variable_any joined_;
  std::vector<std::optional<std::string>> settings_ RONDE_GUARDED_BY(mutex_);
  base::Status failure_
      RONDE_GUARDED_BY(mutex_);  // of the ranks' meeting: nobody can join after it
  bool has_boards_ RONDE_GUARDED_BY(mutex_) = false;
  std::vector<Host> hosts_ RONDE_GUARDED_BY(mutex_);
  std::shared_ptr<collectives::LocalHub> hub_ RONDE_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Round> rounds_ RONDE_GUARDED_BY(mutex_);
};

}  // namespace ronde::runtime
