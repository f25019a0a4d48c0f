// SPDX-License-Identifier: Apache-2.0
// A job whose engine is caller-driven.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/job_shape.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "collectives/transport/transport.h"
#include "runtime/job/job.h"
#include "runtime/job/rank_table.h"
#include "runtime/links/tcp_links.h"

namespace ronde::testing {

// A rank of a job whose transport belongs to one thread, so that its agent stands still while that
// thread is elsewhere.
class BoundJob final : public runtime::Job {
 public:
  explicit BoundJob(std::unique_ptr<runtime::Job> job) : job_(std::move(job)) {}
  [[nodiscard]] std::string transport_bound_to_thread() const override { return "this is a test"; }
  [[nodiscard]] std::int32_t rank() const override { return job_->rank(); }
  [[nodiscard]] const base::JobShape& shape() const override { return job_->shape(); }
  [[nodiscard]] runtime::RankTable rank_table() const override { return job_->rank_table(); }
  [[nodiscard]] std::int64_t cores() const override { return job_->cores(); }
  [[nodiscard]] collectives::Board& board() override { return job_->board(); }
  std::unique_ptr<runtime::TcpLinks> take_links() override { return job_->take_links(); }
  [[nodiscard]] std::unique_ptr<collectives::Transport> take_transport() override {
    return job_->take_transport();
  }
  [[nodiscard]] bool probes() const override { return job_->probes(); }
  base::Result<std::vector<runtime::PeerWatch>> watch_peers() override {
    return job_->watch_peers();
  }
  base::Result<std::vector<std::vector<std::byte>>> allgather(std::span<const std::byte> mine,
                                                              const std::string& activity,
                                                              const base::Clock& clock,
                                                              base::Instant deadline) override {
    return job_->allgather(mine, activity, clock, deadline);
  }
  void abandon() override { job_->abandon(); }
  base::Status close() override { return job_->close(); }

 private:
  const std::unique_ptr<runtime::Job> job_;
};

}  // namespace ronde::testing
