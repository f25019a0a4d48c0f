// SPDX-License-Identifier: Apache-2.0
// The coordinator of a job, on rank 0: carries announcements from the board, and from the leaders
// of other hosts, to the negotiator and its decisions back, and forms batches by group commit.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "collectives/two_level/job_shape.h"
#include "runtime/negotiate/board_desk.h"
#include "runtime/negotiate/control_node.h"
#include "runtime/negotiate/links.h"
#include "runtime/negotiate/messages.h"
#include "runtime/negotiate/negotiator.h"

namespace ronde::runtime {

// Touches the board of its host, the links and the clock; starts no thread and never blocks.
//
// Thread safety: none; only the agent of rank 0 uses it.
class Coordinator final : public ControlNode {
 public:
  // `links`: to other hosts; nullptr on a single host. Every argument given by reference or pointer
  // must outlive the coordinator.
  Coordinator(const collectives::Board& board, const collectives::JobShape& shape, Links* links,
              const base::Config& config, const base::Clock& clock);

  base::Result<int> step(bool data_plane_idle) override;
  void hold_devices_back(bool held) override { negotiator_.hold_devices_back(held); }
  // When a lingering batch or an answer about a stall is due.
  [[nodiscard]] base::Instant next_deadline() const override;
  [[nodiscard]] bool waits_for_idle() const override {
    return negotiator_.has_ready() && linger_until_ == base::kNever;
  }
  [[nodiscard]] bool drained() const override { return desk_.drained() && links_drained_; }

 private:
  // The plan's arrival words on the board of this host, where a position is not a rank's number.
  class BoardArrivals final : public ArrivalWords {
   public:
    BoardArrivals(collectives::Board board, const collectives::JobShape& shape)
        : board_(std::move(board)), shape_(shape) {}
    std::uint32_t close_generation(std::int32_t entry, std::uint32_t generation) override;
    void reset(std::int32_t entry) override;
    std::uint32_t count(std::int32_t entry) override;
    bool has_arrived(std::int32_t rank, std::int32_t entry, std::uint64_t last_batch) override;

   private:
    collectives::Board board_;
    const collectives::JobShape& shape_;
  };
  struct Stall {
    std::int32_t rank = 0;  // the one that reported it
    StalledAnnouncement announced;
    bool roll_called = false;                // the neighbours were asked whether they run
    base::Instant answer_by = base::kNever;  // when they should have answered
  };

  base::Result<int> read_board();
  base::Result<int> read_links(bool data_plane_idle);
  base::Status on_announcement(std::int32_t rank, std::span<const std::byte> bytes);
  base::Status on_message(const LinkMessage& message);
  base::Status report_stalls();
  base::Result<bool> find_silent_host(Stall& stall);
  base::Status report(const Stall& stall);
  base::Status notice(const std::string& name, const std::string& text);
  base::Result<int> publish(bool data_plane_idle);
  base::Status post(const Decision& decision);
  base::Status flush();
  [[nodiscard]] std::string hosts_phrase(const std::vector<std::int32_t>& ranks) const;
  [[nodiscard]] bool is_here(std::int32_t rank) const;
  [[nodiscard]] bool lingers();

  const collectives::JobShape& shape_;
  Links* const links_;
  const base::Config& config_;
  const base::Clock& clock_;
  BoardDesk desk_;
  BoardArrivals arrivals_;
  Negotiator negotiator_;
  base::Instant linger_until_ = base::kNever;
  bool somebody_left_ = false;
  bool links_drained_ = true;
  std::vector<Stall> stalls_;  // not yet reported: other hosts must answer who waits
  // Stalls that were reported, and until when they are not reported again.
  std::map<std::string, base::Instant> noticed_;
};

}  // namespace ronde::runtime
