// SPDX-License-Identifier: Apache-2.0
#include "runtime/lines/quick_calls.h"

#include <algorithm>
#include <utility>

#include "base/numbers.h"

namespace ronde::runtime {

using base::Code;
using base::MutexLock;
using base::Status;
using collectives::Lines;

namespace {

enum Form : std::uint64_t { kGoes = 1, kRefuses };

// Whether lines know the operation, as all ranks have agreed on it.
bool fits_a_line(const AgreedTensor& agreed) {
  const Signature& is = agreed.signature;
  return meets_openly(row(is.operation)) && is.device < 0 && !is.weighted && is.prescale == 1.0 &&
         is.postscale == 1.0 && is.compression == base::Compression::kNone && is.members.empty() &&
         agreed.absent.empty() &&
         payload_of(agreed) <= base::Bytes(std::int64_t{Lines::kMostBytes});
}

// Whether the call has nothing about it that other calls of its name have not.
bool is_plain(const Submission& made) {
  return made.deadline == base::Nanoseconds(0) && !made.step.exists() && made.weights.empty() &&
         made.splits.empty() && made.readiness.empty() && made.views.size() == 1;
}

OpenCall call_of(const Signature& agreed, std::int64_t elements, const Submission& made) {
  return {.form = kGoes,
          .operation = agreed.operation,
          .dtype = agreed.dtype,
          .op = agreed.op,
          .root = agreed.root,
          .elements = elements,
          .input = made.views.front().input,
          .output = made.views.front().output};
}

// A call without memory is refused here, and by the ordinary way in words.
bool has_memory(const OpenCall& call, const OpenCalls& calls) {
  if (call.elements == 0) return true;
  if (calls.gives(call) && call.input == nullptr) return false;
  return call.output != nullptr || (calls.gives(call) && !row(call.operation).reduces);
}

}  // namespace

// ---- which name has a line ----

// after_ batches, and later kPatience times as many, and so on.
bool QuickCalls::deserves_one(const TensorTable::Claimed& claimed) const {
  if (after_ == 0 || claimed.alone == 0 || claimed.alone % after_ != 0) return false;
  std::uint64_t times = claimed.alone / after_;
  while (times % kPatience == 0) times /= kPatience;
  return times == 1 && fits_a_line(claimed.agreed);
}

void QuickCalls::on_batch(const TensorTable::Claimed& claimed) {
  // A rank that has joined may have a thread in a line still, in the call that others have refused.
  if (!claimed.agreed.absent.empty()) return;
  const bool gives = deserves_one(claimed);
  if (!gives && !any_refused_.load(std::memory_order_relaxed)) return;
  const MutexLock lock(mutex_);
  for (const LocalTensorPtr& tensor : claimed.tensors) {
    if (Line* const line = find(tensor->name)) line->given = line->refused = false;
  }
  if (gives) give(claimed);
  count();
}

void QuickCalls::give(const TensorTable::Claimed& claimed) {
  Line* const line = free_line();
  if (line == nullptr) return;
  const LocalTensorPtr& tensor = claimed.tensors.front();
  const Signature& is = claimed.agreed.signature;
  line->name = tensor->name;
  line->agreed = is;
  line->elements = row(is.operation).is_barrier()
                       ? 0
                       : payload_of(claimed.agreed).value() / base::size_of(is.dtype);
  line->calls.words().rename("'" + tensor->name + "'");
  line->given = true;
  if (away_) refuse(*line);
}

QuickCalls::Line* QuickCalls::free_line() {
  for (const auto& line : lines_) {
    if (!line->given) return line.get();
  }
  const auto next = base::narrow<std::int32_t>(std::ssize(lines_));
  if (next == kLines) return nullptr;
  LineHost host = host_();
  const std::int32_t ranks = host.board.ranks();
  const std::span<std::byte> memory = host.board.lines();
  const std::size_t each = Lines::size_of(ranks, Lines::kMostBytes).size();
  if (memory.size() < each * kLines) return nullptr;  // as in a process set
  const Lines lines(memory.subspan(base::narrow<std::size_t>(next) * each, each), ranks,
                    Lines::kMostBytes);
  lines_.push_back(std::make_unique<Line>(std::move(host), lines));
  return lines_.back().get();
}

QuickCalls::Line* QuickCalls::find(const std::string& name) {
  for (const auto& line : lines_) {
    if (line->given && line->name == name) return line.get();
  }
  return nullptr;
}

void QuickCalls::count() {
  const auto given = [](const auto& line) { return line->given; };
  const auto refused = [](const auto& line) { return line->given && line->refused; };
  any_refused_.store(std::ranges::any_of(lines_, refused), std::memory_order_relaxed);
  any_.store(std::ranges::any_of(lines_, given), std::memory_order_release);
}

// ---- calls ----

void QuickCalls::refuse(Line& line) {
  if (line.refused) return;
  line.refused = true;
  any_refused_.store(true, std::memory_order_relaxed);
  line.calls.post({.form = kRefuses});
}

std::optional<Status> QuickCalls::call(Submission& submission, bool may_go) {
  Line* line = nullptr;
  {
    const MutexLock lock(mutex_);
    line = find(submission.name);
    if (line == nullptr || line->refused || line->in_call) return std::nullopt;
    normalize(submission.signature);
    const OpenCall call = call_of(line->agreed, line->elements, submission);
    if (!may_go || !is_plain(submission) || !(submission.signature == line->agreed) ||
        !has_memory(call, line->calls)) {
      refuse(*line);
      return std::nullopt;
    }
    line->in_call = true;
    line->calls.post(call);
  }
  return end(*line, line->calls.words().await(LineWords::For::kAll, line->calls.number()));
}

std::optional<Status> QuickCalls::end(Line& line, const Status& met) {
  const bool goes = met.ok() && line.calls.meet();
  const MutexLock lock(mutex_);
  line.in_call = false;
  if (!met.ok()) return met;
  if (!goes) {
    line.refused = true;
    any_refused_.store(true, std::memory_order_relaxed);
    return std::nullopt;
  }
  if (away_) refuse(line);
  return Status();
}

Status QuickCalls::pass(const Submission& made) {
  const MutexLock lock(mutex_);
  for (const GroupMember& member : made.signature.members) {
    RONDE_RETURN_IF_ERROR(pass(member.name));
  }
  return pass(made.name);
}

Status QuickCalls::pass(const std::string& name) {
  Line* const line = find(name);
  if (line == nullptr) return {};
  if (line->in_call) {
    return Status::error(Code::kDuplicateName, "'" + name +
                                                   "' is already in flight on this rank: wait for "
                                                   "it, or use another name");
  }
  refuse(*line);
  return {};
}

std::string QuickCalls::text_of_call() {
  const MutexLock lock(mutex_);
  const auto line = std::ranges::find_if(lines_, [](const auto& each) { return each->in_call; });
  return line == lines_.end() ? "" : "'" + (*line)->name + "'";
}

void QuickCalls::forget() noexcept {
  for (auto& line : lines_) [[maybe_unused]]
    Line* const of_parent = line.release();
}

void QuickCalls::go_away() {
  const MutexLock lock(mutex_);
  away_ = true;
  for (const auto& line : lines_) {
    if (line->given && !line->in_call) refuse(*line);
  }
}

void QuickCalls::come_back() {
  const MutexLock lock(mutex_);
  away_ = false;
}

}  // namespace ronde::runtime
