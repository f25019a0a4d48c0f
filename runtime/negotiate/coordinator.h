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
#include "base/job_shape.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "runtime/links/links.h"
#include "runtime/negotiate/board_desk.h"
#include "runtime/negotiate/control_node.h"
#include "runtime/negotiate/deadlock_watch.h"
#include "runtime/negotiate/messages.h"
#include "runtime/negotiate/negotiator.h"
#include "runtime/negotiate/relay.h"
#include "runtime/negotiate/set_agreement.h"
#include "runtime/negotiate/stall_notice.h"

namespace ronde::runtime {

// Touches the board of its host, the links and the clock; starts no thread and never blocks.
//
// Thread safety: none; only the agent of rank 0 uses it.
class Coordinator final : public ControlNode {
 public:
  // `links`: to other hosts; nullptr on a single host. Every argument given by reference or pointer
  // must outlive the coordinator.
  Coordinator(const collectives::Board& board, const base::JobShape& shape, Links* links,
              const base::Config& config, const base::Clock& clock, LateRanks& late);

  base::Result<int> step(bool data_plane_idle) override;
  void hold_devices_back(bool held) override { negotiator_.hold_devices_back(held); }
  // When a lingering batch or an answer about a stall is due.
  [[nodiscard]] base::Instant next_deadline() const override;
  [[nodiscard]] bool waits_for_idle() const override {
    return negotiator_.has_ready() && linger_until_ == base::kNever && !over_;
  }
  [[nodiscard]] bool may_pass_messages() const override { return far_.may_pass(); }
  [[nodiscard]] bool drained() const override { return desk_.drained() && links_drained_; }

 private:
  // The plan's arrival words on the board of this host, where a position is not a rank's number.
  class BoardArrivals final : public ArrivalWords {
   public:
    BoardArrivals(collectives::Board board, const base::JobShape& shape)
        : board_(std::move(board)), shape_(shape) {}
    std::uint32_t close_generation(std::int32_t entry, std::uint32_t generation) override;
    void reset(std::int32_t entry) override;
    std::uint32_t count(std::int32_t entry) override;
    bool has_arrived(std::int32_t rank, std::int32_t entry, std::uint64_t last_batch) override;
    StepSpan steps(std::int32_t entry, const Joined& joined) override;
    ArrivalSpan arrivals(std::int32_t entry, const Joined& joined) override;
    StepNumber step_of(std::int32_t rank, std::int32_t entry) override;

   private:
    collectives::Board board_;
    const base::JobShape& shape_;
  };
  // Late tensors that ranks have reported, until the notice or the verdict about them.
  struct Stall {
    struct Late {
      std::string name;
      base::Instant since{};      // when it was submitted, by the earliest of the reports
      std::uint64_t batches = 0;  // how many there were at the last report
      bool known = false;         // it has been found out which ranks wait for it
    };
    std::vector<Late> tensors;
    std::map<std::string, std::size_t> places;  // in `tensors`
    std::int32_t reporter = 0;                  // the rank that reported last
    bool own_deadline = false;                  // by that of a request
    bool roll_called = false;                   // the neighbours were asked whether they run
    base::Instant answer_by = base::kNever;     // when they should have answered

    [[nodiscard]] bool empty() const { return tensors.empty(); }
  };
  enum class Knowledge : std::uint8_t { kAll, kAsking, kSilence };

  base::Result<int> read_board();
  base::Result<int> read_links(bool data_plane_idle);
  base::Status on_announcement(std::int32_t rank, std::span<const std::byte> bytes);
  base::Status on_message(const LinkMessage& message);
  base::Status pass_on(Frame frame);
  void on_stalled(std::int32_t rank, const StalledAnnouncement& announced);
  void add_to(Stall& stall, const StalledAnnouncement& announced, base::Instant now) const;
  [[nodiscard]] bool is_over(const Stall::Late& tensor) const;
  base::Status report_stalls();
  base::Status report_deadlock();
  base::Status fail_expired();
  base::Result<bool> notify_late();     // true: a notice was posted
  base::Result<bool> notify_batched();  // likewise
  base::Result<Knowledge> find_out(Stall& stall);
  [[nodiscard]] std::vector<StalledTensor> waiting_of(const Stall& stall) const;
  [[nodiscard]] std::vector<StalledTensor> with_told(std::vector<StalledTensor> waiting) const;
  [[nodiscard]] std::string describe(std::span<const StalledTensor> late,
                                     std::int32_t* culprit) const;
  [[nodiscard]] std::string phrase_of_unknown(const Stall& stall, base::Nanoseconds& longest) const;
  [[nodiscard]] std::string time_left(base::Nanoseconds waited) const;
  base::Result<int> publish(bool data_plane_idle);
  base::Status post(const Decision& decision);
  base::Status flush();
  [[nodiscard]] std::string place_of(const std::vector<std::int32_t>& ranks) const;
  [[nodiscard]] bool lingers();

  const base::JobShape& shape_;
  Links* const links_;
  const base::Config& config_;
  const base::Clock& clock_;
  BoardDesk desk_;
  BoardArrivals arrivals_;
  Negotiator negotiator_;
  SetAgreement sets_;
  base::Instant linger_until_ = base::kNever;
  bool somebody_left_ = false;
  bool links_drained_ = true;
  bool over_ = false;  // a work was given up: nothing is decided any more
  // Reports are gathered for a moment, so that one notice has all that is late; then there is none
  // for RONDE_STALL_WARNING_SECONDS.
  struct Notice {
    base::Instant at = base::kNever;
    base::Instant not_before{};
  };
  Stall late_;
  Notice notice_;
  Stall batched_;  // late in a batch
  Notice batch_notice_;
  Stall told_;     // what the last notice was about
  Stall expired_;  // past RONDE_STALL_FAILURE_SECONDS
  DeadlockWatch deadlock_;
  FarMessages far_;
};

}  // namespace ronde::runtime
