// SPDX-License-Identifier: Apache-2.0
// The words of an operation by lines as an engine has them: lines on the board, doorbells that ring
// for a rank that sleeps, and how a thread waits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "collectives/in_host/line_protocol.h"
#include "collectives/in_host/lines.h"
#include "runtime/drive/agent_runner.h"
#include "runtime/drive/idle.h"
#include "runtime/lines/line_waits.h"
#include "runtime/member/submitters.h"
#include "runtime/negotiate/messages.h"

namespace ronde::runtime {

// What an engine gives to its operations by lines, which keep it alive or are its own.
struct LineHost {
  collectives::Board board;
  AgentRunner& runner;
  LineWaits& waits;  // of the job, whose agent looks for sleepers
  LineWaits& uses;   // of this engine: those lines end that its join ends
  Submitters& threads;
  const base::Config& config;
  const base::Clock& clock;
  const base::Log& log;
  std::string where;  // the process set, for texts; empty in the job
  bool oversubscribed = false;
  bool caller_driven = false;
  // An error where the engine can be used no more.
  std::function<base::Status()> usable;
  // Fails the job: this operation has waited for too long, for that rank.
  std::function<base::Status(const base::Status& why, std::int32_t rank)> fail;
  // How the job has failed, once it has.
  std::function<base::Status()> failure;
};

// Thread safety: one thread at a time; may_go_on() from any thread while that one sleeps.
class LineWords final : public LineWaits::Waiter {
 public:
  using Sequence = collectives::Lines::Sequence;
  using Protocol = collectives::LineProtocol<LineWords>;
  // Whose lines a thread waits for: those of all others, of the root, or of those that have still
  // to read the call before the last.
  enum class For : std::uint8_t { kAll, kRoot, kReaders };

  // What becomes of a call for which a rank that joins does not come.
  enum class Join : std::uint8_t { kEndsIt, kIsNoConcern };

  // what: what its texts begin with, as in "prepared 'loss'".
  LineWords(LineHost host, const collectives::Lines& lines, std::string what,
            Join join = Join::kEndsIt);
  LineWords(const LineWords&) = delete;
  LineWords& operator=(const LineWords&) = delete;

  [[nodiscard]] const collectives::Lines& lines() const { return lines_; }
  [[nodiscard]] const std::string& what() const { return text_; }
  // While nobody waits.
  void rename(std::string what) { text_ = std::move(what); }
  [[nodiscard]] base::Status usable() const { return host_.usable(); }
  // An error where this rank has joined. A thread that calls here for the first time counts as one
  // that submits.
  [[nodiscard]] base::Status may_begin() {
    if (const std::thread::id id = std::this_thread::get_id(); id != thread_) {
      thread_ = id;
      host_.threads.submitted();
    }
    if (ended_.is_one())
      return ended_by(ended_);  // for good, whoever else may still read the lines
    const bool has_joined = lines_.joined(rank_).load(std::memory_order_relaxed) != 0;
    return has_joined ? ended_by({.rank = rank_}) : base::Status();
  }
  // What begins now is to end by then, in place of the deadline of the engine.
  void set_end(base::Instant end) { end_ = end; }
  // This rank does not use the lines any more.
  void leave() {
    use_.reset();
    lines_.left(rank_).store(1, std::memory_order_release);
  }
  void post_call(Sequence call) { Protocol(*this).post(call); }
  base::Status await(For what, Sequence call, std::int32_t root = 0);
  // The same for the lines of all others, but for so long at most: false where that has gone by,
  // after which await_on() goes on.
  base::Result<bool> await_for(Sequence call, base::Nanoseconds patience);
  base::Result<bool> await_on(base::Instant until);
  [[nodiscard]] base::Instant after(base::Nanoseconds span) const {
    return host_.clock.after(span);
  }

  // ---- for the protocol ----
  [[nodiscard]] std::int32_t rank() const { return rank_; }
  [[nodiscard]] std::int32_t ranks() const { return lines_.ranks(); }
  [[nodiscard]] Sequence sequence(std::int32_t rank, int line) const {
    return lines_.sequence(rank, line).load(std::memory_order_seq_cst);
  }
  void post(int line, Sequence call) const {
    lines_.sequence(rank_, line).store(call, std::memory_order_seq_cst);
  }
  [[nodiscard]] bool sleeps(std::int32_t rank) const {
    return lines_.sleeps(rank).load(std::memory_order_seq_cst) != 0;
  }
  void set_sleeps(bool sleeps) const {
    lines_.sleeps(rank_).store(sleeps ? 1 : 0, std::memory_order_seq_cst);
  }
  void set_ended() const { lines_.ended(rank_).store(ended_.word(), std::memory_order_seq_cst); }
  void ring(std::int32_t rank) const { host_.board.doorbell(rank).ring(); }
  bool watch();
  void sleep();
  [[nodiscard]] bool over() const {
    return late_ || passed_ || host_.board.failed() || end_of_others().is_one();
  }

  [[nodiscard]] bool may_go_on() const override;
  [[nodiscard]] StandingTensor standing() const override;

 private:
  void begin(For what, Sequence call, std::int32_t root);
  base::Result<bool> look_on(base::Instant until);
  void stand();
  // How a rank that this one waits for has ended the operation.
  [[nodiscard]] collectives::LineEnd end_of_others() const;
  [[nodiscard]] base::Status ended_by(collectives::LineEnd end) const;
  base::Status end_with(collectives::LineEnd end);
  base::Status fail_late();
  void look_at_clock();
  [[nodiscard]] bool ready() const;
  [[nodiscard]] std::vector<std::int32_t> missing() const;
  [[nodiscard]] std::string stopped(const std::vector<std::int32_t>& missing) const;
  [[nodiscard]] bool waits_for(std::int32_t rank) const;

  const LineHost host_;
  const collectives::Lines lines_;
  std::string text_;
  const std::int32_t rank_;
  std::optional<LineWaits::Use> use_;
  // The wait in progress has these:
  For what_ = For::kAll;
  Sequence call_ = 0;
  std::int32_t root_ = 0;
  int looks_ = 0;
  Idle idle_;
  collectives::LineEnd ended_;  // as this rank has heard of it
  bool late_ = false;
  base::Instant end_ = base::kNever;  // of this call; kNever: the engine's deadline
  base::Instant until_ = base::kNever;
  bool passed_ = false;    // this has
  base::Instant began_{};  // asleep since
  base::Instant notice_ = base::kNever;
  std::thread::id thread_;
  std::optional<LineWaits::Stand> stand_;       // once it has slept,
  std::optional<Submitters::Waiting> waiting_;  // and without a time of its own
};

}  // namespace ronde::runtime
