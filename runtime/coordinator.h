// SPDX-License-Identifier: Apache-2.0
// The coordinator of a job, on rank 0: carries announcements from the board to the negotiator and
// its decisions back, and forms batches by group commit.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/status.h"
#include "collectives/board.h"
#include "runtime/negotiator.h"

namespace ronde::runtime {

// Thread safety: belongs to the agent of rank 0.
class Coordinator {
 public:
  Coordinator(collectives::Board board, const base::Config& config, const base::Clock& clock);

  // Reads what was announced, decides, and publishes. data_plane_idle: this rank has executed every
  // batch, so the next one goes at once; otherwise what is ready waits and goes together.
  // Returns how much was done.
  base::Result<int> step(bool data_plane_idle);

  // When a lingering batch is due; kNever without one.
  [[nodiscard]] base::Instant next_deadline() const;
  // A step() with the data plane idle would publish a batch: what is ready waits for nothing else.
  [[nodiscard]] bool waits_for_idle() const {
    return negotiator_.has_ready() && linger_until_ == base::kNever;
  }
  // Everything that was decided has reached the board.
  [[nodiscard]] bool drained() const { return drained_; }

 private:
  // The plan's words on the board.
  class BoardArrivals final : public ArrivalWords {
   public:
    explicit BoardArrivals(collectives::Board board) : board_(std::move(board)) {}
    std::uint32_t close_generation(std::int32_t entry, std::uint32_t generation) override;
    void reset(std::int32_t entry) override;
    std::uint32_t count(std::int32_t entry) override;
    bool has_arrived(std::int32_t rank, std::int32_t entry) override;

   private:
    collectives::Board board_;
  };

  base::Result<int> read_announcements();
  base::Status on_announcement(std::int32_t rank, const Announcement& announcement);
  base::Status on_stalled(std::int32_t rank, const StalledAnnouncement& stalled);
  base::Result<int> publish(bool data_plane_idle);
  base::Status post(const Decision& decision);
  void detach_departed();
  void ring_the_others();
  [[nodiscard]] bool lingers();

  collectives::Board board_;
  const base::Config& config_;
  const base::Clock& clock_;
  BoardArrivals arrivals_;
  Negotiator negotiator_;
  std::vector<collectives::StreamReader> announcements_;
  collectives::StreamWriter decisions_;
  base::Instant linger_until_ = base::kNever;
  std::vector<std::int32_t> leaving_;  // said good-bye to, perhaps still reading
  // Stalls that were reported, and until when they are not reported again.
  std::map<std::string, base::Instant> noticed_;
  bool drained_ = true;
};

}  // namespace ronde::runtime
