// SPDX-License-Identifier: Apache-2.0
// A job whose ranks are engines in this process: memory instead of messages, the same board
// protocol. Tests of the whole runtime use it, and so does a process that is alone.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/job_shape.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/wire/frame_socket.h"
#include "collectives/transport/local.h"
#include "runtime/job/job.h"
#include "runtime/links/tree.h"

namespace ronde::runtime {

// What the engines of the job share. They own it together. join() and allgather() block until all
// ranks have called them, or a deadline has passed.
//
// Thread safety: every function may be called from any thread.
class LocalJob : public std::enable_shared_from_this<LocalJob> {
 public:
  // All ranks share one host.
  static base::Result<std::shared_ptr<LocalJob>> create(std::int32_t size);
  // Each host of `shape` has a board of its own, and the leaders exchange messages over socket
  // pairs, as leaders of processes do over TCP. `fan_in` is that of the tree of the hosts; `hub`
  // carries messages between the ranks (without one the job makes its own), unless `transports`
  // makes the transport of each rank, when the rank opens its engine.
  using Transports = std::function<std::unique_ptr<collectives::Transport>(std::int32_t rank)>;
  static base::Result<std::shared_ptr<LocalJob>> create(
      const base::JobShape& shape, std::int32_t fan_in = HostTree::kFanIn,
      std::shared_ptr<collectives::LocalHub> hub = nullptr, Transports transports = {});

  [[nodiscard]] const base::JobShape& shape() const { return shape_; }
  [[nodiscard]] RankTable rank_table() const;

  // Waits until every rank has joined with the same shared settings.
  base::Result<std::unique_ptr<Job>> join(std::int32_t rank, const base::Config& config,
                                          const base::Clock& clock);

  // Returns every rank's bytes of round `round`; each rank counts its rounds. Only ranks that have
  // joined may call it.
  using Parts = std::vector<std::vector<std::byte>>;
  base::Result<Parts> allgather(std::int32_t rank, std::uint64_t round,
                                std::span<const std::byte> mine, base::Nanoseconds timeout);

 private:
  struct Round {
    std::vector<std::optional<std::vector<std::byte>>> parts;  // by rank
    std::int32_t read = 0;                                     // how many ranks have read it
  };
  // What the ranks of one host share.
  struct Host {
    collectives::EventFds event_fds;
    std::shared_ptr<collectives::SharedMemory> memory;
    LinkEnds links;  // until the leader takes them
  };

  LocalJob(const base::JobShape& shape, std::int32_t fan_in, Transports transports)
      : shape_(shape), fan_in_(fan_in), transports_(std::move(transports)) {}
  base::Status make_hosts() RONDE_REQUIRES(mutex_);
  base::Status make_boards(const base::Config& config) RONDE_REQUIRES(mutex_);
  base::Result<std::unique_ptr<Job>> make_member(std::int32_t rank) RONDE_REQUIRES(mutex_);
  base::Result<Parts> exchange(std::int32_t rank, std::uint64_t round,
                               std::span<const std::byte> mine, base::Nanoseconds timeout,
                               const std::string& failing) RONDE_REQUIRES(mutex_);

  const base::JobShape shape_;
  const std::int32_t fan_in_;
  const Transports transports_;
  base::Mutex mutex_;
  std::condition_variable_any arrived_;
  std::vector<bool> has_joined_ RONDE_GUARDED_BY(mutex_);  // by rank
  base::Status failure_ RONDE_GUARDED_BY(mutex_);  // some rank did not come; afterwards none can
  bool has_boards_ RONDE_GUARDED_BY(mutex_) = false;
  std::vector<Host> hosts_ RONDE_GUARDED_BY(mutex_);
  std::shared_ptr<collectives::LocalHub> hub_ RONDE_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Round> rounds_ RONDE_GUARDED_BY(mutex_);
};

}  // namespace ronde::runtime
