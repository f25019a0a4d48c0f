// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/rank_agent.h"

#include <algorithm>
#include <exception>

#include "base/host_name.h"
#include "collectives/kernels/floating_point_mode.h"

namespace ronde::runtime {

using base::Code;
using base::Instant;
using base::kNever;
using base::Result;
using base::Status;

RankAgent::RankAgent(Job& job, TensorTable& table, const base::Config& config,
                     const base::Clock& clock, const base::Log& log, Hooks hooks)
    : context_{job.board(), job.shape(), job.rank(), config, clock, log},
      failure_(context_, {[this](const auto& record) { control_.notify(record); },
                          [this, &job](const Status& why) {
                            execution_.drop_batches(why.message());
                            job.abandon();
                            execution_.abandon_transport();
                            member_.table().shut(why);
                          },
                          [this](const Status& why) {
                            for (const auto& tensor : member_.table().remove_all(true)) {
                              works_.end(tensor, why, true);
                            }
                            works_.complete_once(departed_);
                            works_.complete_once(works_.drained());
                          }}),
      line_waits_(hooks.complete),
      works_(table, std::move(hooks.complete)),
      streams_(context_, std::move(hooks.notify)),
      member_(context_, streams_, failure_, table, *this),
      control_(context_, job.take_links()),
      execution_(job, context_, works_),
      stalls_(context_, member_, failure_, control_.links()) {}

// ---- Agent ----

int RankAgent::do_work(SleepState& sleep) {
  int work = line_waits_.look();
  bool left = true;  // unless step() returns without an error
  if (!failure_.failed()) {
    const collectives::ScopedFloatingPointMode mode;
    try {
      work += failure_.check() ? 1 : stepped(step(sleep, left));
    } catch (const std::exception&) {
      // Only a lack of memory throws in here. This thread must go on to give back the agent's role,
      // so the job fails, which frees memory, and the next step can spread the failure.
      failure_.fail_for_memory();
      execution_.drop_batches();
      work = 1;
    }
  }
  sleep.note_left(left && !failure_.failed());  // after a failure no work is left
  return work;
}

// What a step did; its error fails the job.
int RankAgent::stepped(const Result<int>& worked) {
  if (worked.ok()) return *worked;
  failure_.fail(worked.status(), worked.status().rank().value_or(-1));
  static_cast<void>(failure_.check());
  return 1;
}

Instant RankAgent::next_deadline() {
  if (failure_.failed()) return kNever;
  // Submitting does not wake a sleeping driver, so it looks for late tensors from time to time.
  const Instant now = context_.clock.about_now();
  const base::Nanoseconds patience = context_.config.stall_warning / 4;
  const Instant look = patience >= kNever - now ? kNever : now + patience;
  return std::min({look, stalls_.next(), execution_.next_deadline(), control_.next_deadline()});
}

void RankAgent::on_event(int fd) {
  const auto found = std::find_if(watched_.begin(), watched_.end(),
                                  [fd](const auto& watched) { return watched.first == fd; });
  if (found != watched_.end()) found->second();
}

void RankAgent::on_end_of(std::int32_t rank) {
  const std::int32_t position = context_.shape.position_of(rank);
  const collectives::Presence presence = context_.board.presence(position);
  if (presence.state == collectives::PresenceState::kClosed) return;
  context_.board.set_state(position, collectives::PresenceState::kDead);
  std::string text = "rank " + std::to_string(rank) + " (host " + base::host_name() + ", pid " +
                     std::to_string(presence.pid) +
                     ") died: its process ended without closing its engine";
  if (!presence.activity.empty()) text += "; it was last " + presence.activity;
  failure_.fail(Status::error(Code::kPeerFailed, text), rank);
}

// ---- stepping ----

// Control before data: what was decided can be executed in the same step.
Result<int> RankAgent::step(SleepState& sleep, bool& left) {
  RONDE_RETURN_IF_ERROR(streams_.flush());
  RONDE_ASSIGN_OR_RETURN(int work, control_.step(!execution_.busy(), sleep));
  while (true) {
    RONDE_ASSIGN_OR_RETURN(const auto decision, streams_.next());
    // What was decided after the job had failed is not the reason; the next look finds that.
    if (!decision.has_value() || context_.board.failed()) break;
    RONDE_RETURN_IF_ERROR(member_.on_decision(*decision));
    ++work;
  }
  RONDE_ASSIGN_OR_RETURN(const int executed, execution_.step());
  work += executed;
  RONDE_ASSIGN_OR_RETURN(const int arrived, execution_.arm(work, sleep));
  stalls_.check();
  works_.check_drained();
  // No doorbell rings for these: a batch that was interrupted although it could go on, and tensors
  // that the coordinator held back until the last batch had finished.
  const bool awaited = control_.waits_for_idle(execution_.device_full());
  left = execution_.can_go_on() || (awaited && !execution_.busy());
  return work + arrived;
}

Status RankAgent::on_batch(std::uint64_t sequence, TensorTable::Claimed claimed) {
  execution_.begin(sequence, std::move(claimed));
  return {};
}

void RankAgent::on_failed(const LocalTensorPtr& tensor, const Status& why) {
  works_.end(tensor, why, false);
}

void RankAgent::on_all_joined(const LocalTensorPtr& join, std::int32_t last) {
  join->work->last_joined = last;
  works_.end(join, Status(), false);
}

// ---- the end ----

void RankAgent::spread_failure() noexcept {
  try {
    static_cast<void>(failure_.check());
  } catch (const std::exception&) {
    failure_.fail_for_memory();  // the ranks of this host see it on the board
  }
}

void RankAgent::close() {
  execution_.close();
  context_.board.set_state(collectives::PresenceState::kClosed);
  if (!context_.leads()) context_.board.doorbell(kLeader).ring();
  control_.close(failure_.failed());
  // Last, because UCX waits here for other ranks, and those of the hosts below wait for the link.
  execution_.close_transport();
}

}  // namespace ronde::runtime
