// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/rank_agent.h"

#include <algorithm>
#include <exception>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "base/host_name.h"
#include "collectives/kernels/floating_point_mode.h"

namespace ronde::runtime {

using base::Code;
using base::Instant;
using base::kNever;
using base::Result;
using base::Status;

namespace {

std::string host_text(const Job& job) {
  return job.shape().hosts() == 1 ? base::host_name() : job.shape().host_name(job.host());
}

}  // namespace

RankAgent::RankAgent(Job& job, TensorTable& table, const base::Config& config,
                     const base::Clock& clock, const base::Log& log, const SetIdentity* set,
                     Hooks hooks)
    : context_{job.board(), job.shape(),
               job.rank(),  config,
               clock,       log,
               set,         hooks.timeline != nullptr ? hooks.timeline : &timeline_},
      timeline_({job.rank(), job.host(), job.shape().hosts(), host_text(job)}, context_.board,
                clock, log),
      failure_(context_, {[this](const auto& record) { control_.notify(record); },
                          [this, &job](const Status& why) {
                            execution_.drop_batches(why.message());
                            job.abandon();
                            if (context_.set == nullptr) execution_.abandon_transport();
                            member_.table().shut(why);
                          },
                          [this](const Status& why) {
                            for (const auto& tensor : member_.table().remove_all(true)) {
                              works_.end(tensor, why, true);
                            }
                            messages_.fail(why);
                            works_.complete_once(departed_);
                            works_.complete_once(works_.drained());
                            openings_.shut(why, [this](Completion& answered) {
                              works_.complete_once(answered);
                            });
                          }}),
      line_waits_(hooks.complete),
      works_(table, std::move(hooks.complete)),
      streams_(context_, std::move(hooks.notify)),
      member_(context_, streams_, failure_, table, *this),
      control_(context_, job.take_links(), job.take_set_links(), late_),
      execution_(job, context_, works_),
      over_transport_(execution_.transport() != nullptr),
      stalls_(context_, member_, failure_, control_.links()),
      threads_(hooks.threads_of_job),
      standing_(context_, member_, threads_,
                {.idle = [this] { return execution_.idle() && !messages_.busy(); },
                 .sets = [this](StandingAnnouncement& to) { return sets_stand(to); },
                 .beside = [this] { return oldest_beside(); },
                 .add_beside = [this](StandingAnnouncement& to,
                                      const std::string& where) { return add_beside(to, where); }}),
      messages_(context_, job.oversubscribed(),
                {.allocate = std::move(hooks.allocate),
                 .send_far = [this](std::int32_t to, const Record& record,
                                    auto bytes) { return send_far(to, record, bytes); },
                 .end = [this](Work& work, const Status& status,
                               bool of_job) { end_message(work, status, of_job); },
                 .remember = [this](const Status& why) { works_.remember(why); },
                 .fail = [this](const Status& why,
                                std::int32_t culprit) { failure_.fail(why, culprit); }}),
      clocks_(context_, *context_.timeline,
              [this](std::int32_t to, const Record& record) { return send_far(to, record, {}); }),
      tree_(context_.shape.hosts(), job.rank_table().fan_in),
      send_frame_(std::move(hooks.send_frame)),
      quick_(hooks.quick) {
  timeline_.set_times(execution_.times());
}

// ---- Agent ----

int RankAgent::do_work(SleepState& sleep) {
  int work = line_waits_.look();
  look_soon_at_lines(work > 0);
  bool left = true;  // unless step() returns without an error
  if (sets_.changed()) work += take_changes_of_sets();
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
  if (failure_.failed()) work += fail_sets();
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

// ---- process sets ----

int RankAgent::take_changes_of_sets() {
  try {
    return sets_.take_changes([this](RankAgent& added) { added.want_rings(wants_rings_); },
                              [this](RankAgent& removed, Completion& done) {
                                frames_sent_ += removed.frames_sent_;
                                frames_taken_ += removed.frames_taken_;
                                works_.complete_once(done);
                              });
  } catch (const std::exception&) {
    failure_.fail_for_memory();
    return 1;
  }
}

// An error in a set fails the job. A set whose work was given up may have failed alone.
int RankAgent::step_sets(SleepState& sleep, bool& left) {
  int work = 0;
  for (RankAgent* const set : sets_.all()) {
    if (set->failure_.failed()) continue;
    bool left_in_set = true;
    work += set->failure_.check() ? 1 : set->stepped(set->step(sleep, left_in_set));
    left = left || left_in_set;
  }
  return work;
}

int RankAgent::step_executions_of_sets() {
  int work = 0;
  for (RankAgent* const set : sets_.all()) {
    if (set->execution_.busy()) work += set->stepped(set->execution_.step());
    if (set->messages_.busy()) work += set->stepped(set->messages_.step());
  }
  return work;
}

// The job has failed, and its device and transport have been given up.
int RankAgent::fail_sets() {
  int work = 0;
  for (RankAgent* const set : sets_.all()) {
    if (!set->failure_.failed() && set->failure_.check()) ++work;
  }
  return work;
}

bool RankAgent::sets_busy() const {
  const auto& all = sets_.all();
  return std::any_of(all.begin(), all.end(), [](RankAgent* set) { return set->busy(); });
}

void RankAgent::want_rings(bool wanted) {
  wants_rings_ = wanted;
  execution_.want_rings(wanted);
  for (RankAgent* const set : sets_.all()) set->want_rings(wanted);
}

Instant RankAgent::next_own_deadline() const {
  if (failure_.failed()) return kNever;
  return std::min({stalls_.next(), standing_.next(), execution_.next_deadline(),
                   control_.next_deadline(), messages_.next_deadline(), clocks_.next()});
}

Instant RankAgent::next_deadline() {
  if (failure_.failed()) return kNever;
  // Submitting does not wake a sleeping driver, so it looks for late tensors from time to time.
  const Instant now = context_.clock.about_now();
  const base::Nanoseconds patience = context_.config.stall_warning / 4;
  const Instant look = patience >= kNever - now ? kNever : now + patience;
  Instant next = std::min(look, next_own_deadline());
  for (const RankAgent* const set : sets_.all()) next = std::min(next, set->next_own_deadline());
  return next;
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
    RONDE_RETURN_IF_ERROR(on_decision(*decision));
    ++work;
  }
  RONDE_ASSIGN_OR_RETURN(const int executed, execution_.step());
  work += executed;
  if (given_up_ && execution_.idle()) {
    failure_.end(*given_up_);  // where a leader has read it, those whom it leads can do so
    return work + 1;
  }
  bool left_in_sets = false;
  work += step_sets(sleep, left_in_sets);
  RONDE_ASSIGN_OR_RETURN(const int moved, messages_.step());
  work += moved;
  RONDE_ASSIGN_OR_RETURN(
      const int arrived,
      execution_.arm(work, sleep, {sets_busy(), [this] { return step_executions_of_sets(); }}));
  stalls_.check();
  standing_.check();
  RONDE_RETURN_IF_ERROR(clocks_.check());
  if (!messages_.in_use() || messages_.idle()) works_.check_drained();
  // No doorbell rings for these: a batch that was interrupted although it could go on, and tensors
  // that the coordinator held back until the last batch had finished.
  const bool awaited = control_.waits_for_idle(execution_.device_full());
  left = left_in_sets || execution_.can_go_on() || messages_.moving() ||
         (awaited && !execution_.busy());
  return work + arrived;
}

Status RankAgent::on_decision(const Decision& decision) {
  if (on_decision_about_sets(decision)) return {};
  if (const auto* given_up = std::get_if<GivenUpDecision>(&decision)) {
    const auto& [code, text, place] = given_up->why;
    gives_up_.store(true, std::memory_order_release);
    given_up_ = Status::remote(code, context_.told(Status::error(code, text)).message(), place,
                               context_.rank_of_job(given_up->rank));
    return {};
  }
  RONDE_RETURN_IF_ERROR(member_.on_decision(decision));
  const auto* departed = std::get_if<DepartedDecision>(&decision);
  if (departed == nullptr) return {};
  messages_.on_departed(departed->rank, departed->left);
  if (context_.set == nullptr) on_departed_leader(departed->rank);
  return {};
}

bool RankAgent::on_decision_about_sets(const Decision& decision) {
  if (const auto* frame = std::get_if<FrameDecision>(&decision)) {
    if (frame->to != context_.rank) return true;
    if (frame->number == 0) {
      deliver(frame->from, frame->message);
    } else if (!sets_.deliver(frame->number, {frame->from, frame->message})) {
      drop(*frame);
    }
    return true;
  }
  if (const auto* open = std::get_if<SetDecision>(&decision)) {
    const auto& ranks = open->ranks;
    if (std::binary_search(ranks.begin(), ranks.end(), context_.rank)) sets_.expect(open->number);
    if (passes_on(ranks)) passed_on_[open->number] = set_phrase(open->name, ranks);
  } else if (const auto* ended = std::get_if<SetEndedDecision>(&decision)) {
    passed_on_.erase(ended->number);
  }
  passes_on_.store(!passed_on_.empty(), std::memory_order_release);
  return openings_.on_decision(decision, context_.rank,
                               [this](Completion& answered) { works_.complete_once(answered); });
}

// Without the coordinator, or the leader to which this rank speaks, no answer comes any more.
void RankAgent::on_departed_leader(std::int32_t rank) {
  if (rank != context_.rank && rank != kCoordinator && rank != context_.rank_at(kLeader)) return;
  openings_.shut(Status::error(Code::kClosed, "rank " + std::to_string(rank) +
                                                  " has closed its engine, so no process set "
                                                  "can be opened any more")
                     .with_rank(rank),
                 [this](Completion& answered) { works_.complete_once(answered); });
}

// Whether this rank passes on what the ranks of a set tell each other, as the leader of a host
// between two of them.
bool RankAgent::passes_on(const std::vector<std::int32_t>& ranks) const {
  const base::JobShape& shape = context_.shape;
  if (!context_.leads() || shape.hosts() == 1) return false;
  std::set<std::int32_t> hosts;
  for (const std::int32_t rank : ranks) hosts.insert(shape.host_of(rank));
  return hosts.size() > 1 && std::any_of(hosts.begin(), hosts.end(), [&](std::int32_t host) {
           while (host > shape.host_of(context_.rank)) host = tree_.parent_of(host);
           return host == shape.host_of(context_.rank);
         });
}

Status RankAgent::on_batch(std::uint64_t sequence, TensorTable::Claimed claimed) {
  if (quick_ != nullptr) quick_->on_batch(claimed);
  execution_.begin(sequence, std::move(claimed));
  return {};
}

void RankAgent::on_failed(const LocalTensorPtr& tensor, const Status& why) {
  works_.end(tensor, why, false);
}

void RankAgent::on_all_joined(const LocalTensorPtr& join, std::int32_t last) {
  if (quick_ != nullptr) quick_->come_back();
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
  context_.board.ring_all();  // whoever waits for this rank in a line, and the leader
  messages_.leave();
  control_.close(failure_.failed());
  // Last, because UCX waits here for other ranks, and those of the hosts below wait for the link.
  execution_.close_transport();
}

}  // namespace ronde::runtime
