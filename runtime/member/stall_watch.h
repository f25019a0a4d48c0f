// SPDX-License-Identifier: Apache-2.0
// Watches the tensors of a member: what is late is reported, and fails the job in the end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/links/links.h"
#include "runtime/member/failure_path.h"
#include "runtime/member/member.h"
#include "runtime/member/rank_context.h"

namespace ronde::runtime {

// Shares the member, whose table it asks and through which it reports, the failure path, and the
// links of the leader (nullptr elsewhere and on a single host). Owns what it has reported.
//
// Thread safety: none; only the agent uses it.
class StallWatch {
 public:
  StallWatch(const RankContext& context, Member& member, const FailurePath& failure, Links* links)
      : context_(context), member_(member), failure_(failure), links_(links) {}

  // Call it in every step; it mostly reads a clock.
  void check();
  // The coordinator's notice about late tensors is printed once on each host.
  void on_notice(const NoticeDecision& notice);
  // When the first tensor in flight will be late, or something is due about one that is.
  [[nodiscard]] base::Instant next() const;

 private:
  // Tensors that this rank reported as stalled for good; if the coordinator has not failed the job
  // by `at`, this rank does.
  struct GivingUp {
    std::vector<LocalTensorPtr> tensors;
    base::Instant at = base::kNever;
    bool batch_overdue = false;  // the first was in a batch when it was due before
  };
  // Tensors whose batch does not move, and until when other hosts may report the cause.
  struct Inquiry {
    std::vector<LocalTensorPtr> tensors;
    base::Instant ends_at = base::kNever;
    bool roll_called = false;
  };

  void report_late(base::Instant now);
  [[nodiscard]] std::vector<LocalTensorPtr> late_tensors();
  void announce_late(const std::vector<LocalTensorPtr>& tensors, base::Instant now, bool failed);
  void report_expired(base::Instant now);
  [[nodiscard]] std::vector<LocalTensorPtr> expired(base::Instant now);
  void print_own_notice();
  [[nodiscard]] bool speaks_for_stopped_leader() const;
  void give_up();
  void inquire(const LocalTensorPtr& tensor);
  void end_inquiry();
  void fail_overdue(const LocalTensor& tensor);
  [[nodiscard]] std::string stall_text(const LocalTensor& tensor) const;
  [[nodiscard]] std::string text_of_host() const;
  // The first rank of this host whose process is stopped, or -1.
  [[nodiscard]] std::int32_t stopped_rank() const;
  [[nodiscard]] bool one_host() const { return context_.shape.hosts() == 1; }

  const RankContext& context_;
  Member& member_;
  const FailurePath& failure_;
  Links* const links_;
  // Tensors that this rank has reported as late, and when it does so again.
  std::vector<std::weak_ptr<LocalTensor>> late_;
  base::Instant next_report_ = base::kNever;
  // When this rank prints a notice of its own, because the coordinator has not sent one.
  base::Instant own_notice_at_ = base::kNever;
  GivingUp giving_up_;
  Inquiry inquiry_;
  base::Instant next_check_{};  // nothing can be late before
};

}  // namespace ronde::runtime
