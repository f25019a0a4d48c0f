// SPDX-License-Identifier: Apache-2.0
// Blocking calls by name that meet in lines on the board: once a small operation of one host has
// been a batch by itself often enough, its next calls need no coordinator, as those of a prepared
// operation. The user sees nothing of it but the time that it takes.
//
// A name gets a line where the RONDE_LINES_AFTER-th batch of it is claimed, as far as the batch was
// planned, held it alone, and the operation is one that lines know (meets_openly), of up to
// Lines::kMostBytes, with everybody in it. That is the lowest line that is free. All ranks claim
// the same batches in the same order, so all give it the same line without a word.
//
// From then on each call of the name on each rank posts in the line either its bytes or a refusal,
// in the form beside the number (open_calls.h), and all look at the forms of all:
// - nobody refuses: the call is done;
// - somebody refuses: nobody has used a byte, and all go the ordinary way with this call: as with
//   every later one, until a batch of that name is claimed in which all ranks take part. There all
//   take the line back, and the name gets one again after kPatience times as many batches.
// A rank refuses for a call that is not exactly what was agreed, or that has a deadline, a step or
// weights, or that does not wait; while a timeline is on; and for what may come when it joins or
// closes its engine.
//
// Why that is right:
// - Each call of a name is one post on each rank until the first refusal, so call k of one rank is
//   call k of all. Whether it goes by the line is a function of all forms of call k, which every
//   rank in it reads: so it does on all of them, or on none.
// - A rank that has refused call k or seen a refusal posts nothing more. So nobody overwrites what
//   another one still reads of call k - 1, although it may not have seen all of call k.
// - The batch that takes the line back is of a name that all ranks have submitted: each had refused
//   or seen a refusal, all of the same k, and none is in the line. So the next name in the line
//   begins at k + 1 on all ranks.
// A thread that is in call k when another one joins, or closes the engine, is left in it: the call
// is this rank's last one if nobody refuses it, and otherwise has come too late.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/numbers.h"
#include "base/status.h"
#include "collectives/in_host/lines.h"
#include "runtime/lines/line_words.h"
#include "runtime/lines/open_calls.h"
#include "runtime/tensors/signature.h"
#include "runtime/tensors/submission.h"
#include "runtime/tensors/tensor_table.h"

namespace ronde::runtime {

// Thread safety: on_batch() is for the agent; the rest may be called from any thread.
class QuickCalls {
 public:
  static constexpr std::int32_t kLines = 32;
  static constexpr std::uint64_t kPatience = 64;
  // after: RONDE_LINES_AFTER; 0: no name ever gets a line. host: asked when the first one does.
  QuickCalls(std::int64_t after, std::function<LineHost()> host)
      : after_(base::narrow<std::uint64_t>(after)), host_(std::move(host)) {}

  // A batch has been claimed: a name of it may get a line, or lose its own.
  void on_batch(const TensorTable::Claimed& claimed);

  // False: no name has a line, so the next two need not be called. Cheap.
  [[nodiscard]] bool any() const { return any_.load(std::memory_order_acquire); }
  // A call that waits. Nothing: it is to go the ordinary way. may_go: as far as this rank knows of
  // what does not lie in the submission.
  std::optional<base::Status> call(Submission& submission, bool may_go);
  // Before a tensor or a group goes the ordinary way. An error where a name of it is in flight in a
  // line.
  base::Status pass(const Submission& made);

  // The name of a call in which a thread of this rank is; empty: there is none.
  std::string text_of_call();
  // In a forked child: what the parent's threads are in is left to the parent.
  void forget() noexcept RONDE_UNGUARDED;

  // This rank submits nothing from now on, until it comes back.
  void go_away();
  void come_back();

 private:
  struct Line {
    Line(LineHost host, const collectives::Lines& lines)
        : calls(std::move(host), lines, "", LineWords::Join::kIsNoConcern) {}
    OpenCalls calls;
    bool given = false;    // to this name
    bool refused = false;  // by a rank
    bool in_call = false;  // a thread of this rank is
    std::string name;
    Signature agreed;
    std::int64_t elements = 0;
  };
  [[nodiscard]] bool deserves_one(const TensorTable::Claimed& claimed) const;
  void give(const TensorTable::Claimed& claimed) RONDE_REQUIRES(mutex_);
  Line* free_line() RONDE_REQUIRES(mutex_);
  Line* find(const std::string& name) RONDE_REQUIRES(mutex_);
  void refuse(Line& line) RONDE_REQUIRES(mutex_);
  base::Status pass(const std::string& name) RONDE_REQUIRES(mutex_);
  void count() RONDE_REQUIRES(mutex_);
  std::optional<base::Status> end(Line& line, const base::Status& met);

  const std::uint64_t after_;
  const std::function<LineHost()> host_;
  std::atomic<bool> any_{false};
  std::atomic<bool> any_refused_{false};
  base::Mutex mutex_;
  bool away_ RONDE_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Line>> lines_ RONDE_GUARDED_BY(mutex_);
};

}  // namespace ronde::runtime
