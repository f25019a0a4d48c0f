// SPDX-License-Identifier: Apache-2.0
// Agreeing on a prepared operation, and its calls.
#include "runtime/engine/prepared.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "collectives/kernels/floating_point_mode.h"
#include "runtime/engine/engine.h"
#include "runtime/negotiate/disagreement.h"
#include "runtime/negotiate/messages.h"
#include "runtime/tensors/submission.h"

namespace ronde::runtime {

using base::Code;
using base::Operation;
using base::Result;
using base::Status;
using collectives::Lines;

namespace {

// An ordinary operation over bytes, which waits: how the ranks agree.
Submission agreement(Operation operation, const std::string& name, std::span<std::byte> bytes) {
  Submission made;
  made.name = name;
  made.will_wait = true;
  made.signature.operation = operation;
  made.signature.dtype = base::DType::kU8;
  made.signature.op = base::ReduceOp::kSum;
  made.signature.shape = {std::ssize(bytes)};
  made.views.front().input = bytes.data();
  made.views.front().output = operation == Operation::kBroadcast ? bytes.data() : nullptr;
  return made;
}

// What each rank says, by rank; each part begins with its length.
Result<std::vector<Statement>> statements_of(std::span<const std::byte> all) {
  std::vector<Statement> statements;
  while (!all.empty()) {
    std::uint64_t size = 0;
    if (all.size() < sizeof size) break;
    std::memcpy(&size, all.data(), sizeof size);
    all = all.subspan(sizeof size);
    if (size > all.size()) break;
    RONDE_ASSIGN_OR_RETURN(auto announced, decode_announcement(all.first(size)));
    auto& request = std::get<RequestAnnouncement>(announced);
    statements.push_back({std::move(request.signature), std::move(request.place), request.step});
    all = all.subspan(size);
  }
  return statements;
}

std::vector<std::byte> statement_of(const LocalTensor& tensor) {
  const std::vector<std::byte> text =
      encode(Announcement(RequestAnnouncement{tensor.name, tensor.place, tensor.signature, {}}));
  const std::uint64_t size = text.size();
  std::vector<std::byte> bytes(sizeof size + text.size());
  std::memcpy(bytes.data(), &size, sizeof size);
  std::ranges::copy(text, bytes.begin() + sizeof size);
  return bytes;
}

}  // namespace

// ---- calls by lines ----

LineCalls::LineCalls(LineHost host, const Lines& lines, const AgreedTensor& agreed,
                     const LocalTensor& tensor, std::vector<std::size_t> bytes_of_rank)
    : words_(std::move(host), lines, "prepared '" + tensor.name + "'"),
      operation_(agreed.signature.operation),
      root_(agreed.signature.root),
      deadline_(tensor.deadline),
      input_(tensor.views.empty()
                 ? std::span<const std::byte>()
                 : std::span(tensor.views.front().input, tensor.views.front().bytes().size())),
      output_(tensor.views.empty() ? nullptr : tensor.views.front().output),
      bytes_of_rank_(std::move(bytes_of_rank)) {
  if (row(operation_).reduces) plan_reduction(agreed);
  std::size_t all = 0;
  for (const std::size_t bytes : bytes_of_rank_) all += bytes;
  gathered_.resize(all);
}

LineCalls::~LineCalls() { words_.leave(); }

std::size_t LineCalls::most_bytes(const LocalTensor& tensor,
                                  const std::vector<std::size_t>& bytes_of_rank) {
  if (!bytes_of_rank.empty()) return std::ranges::max(bytes_of_rank);
  return tensor.views.empty() ? 0 : tensor.views.front().bytes().size();
}

void LineCalls::plan_reduction(const AgreedTensor& agreed) {
  const Signature& is = agreed.signature;
  const std::int32_t ranks = words_.ranks();
  const collectives::Reduction how{is.dtype, is.op, is.prescale, is.postscale, is.compression};
  kernels_ = &collectives::kernels_for(is.dtype, is.op);
  scaling_ = collectives::scaling_of(how, ranks);
  const std::int64_t size = base::size_of(is.dtype);
  std::int64_t from = 0;
  elements_ = base::narrow<std::int64_t>(input_.size()) / size;
  if (is.operation == Operation::kReduceScatter) {
    const std::int64_t row = row_elements(is.shape).value();
    from = rows_before_rank(is, words_.rank(), ranks) * row * size;
    elements_ = rows_of_rank(is, words_.rank(), ranks) * row;
  }
  for (const int line : {0, 1}) {
    sources_[line].reserve(base::narrow<std::size_t>(ranks));
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      sources_[line].push_back(words_.lines().bytes(rank, line) + from);
    }
  }
}

Status LineCalls::start() {
  RONDE_RETURN_IF_ERROR(words_.may_begin());
  if (deadline_ > base::Nanoseconds(0)) words_.set_end(words_.after(deadline_));
  const Lines::Sequence call = call_ + 1;
  const bool broadcasts = row(operation_).has_root;
  if (broadcasts && words_.rank() != root_) {
    call_ = call;
    return {};
  }
  if (broadcasts) {
    RONDE_RETURN_IF_ERROR(words_.await(LineWords::For::kReaders, call));
  }
  const int line = LineWords::Protocol::line_of(call);
  if (!input_.empty()) {
    std::memcpy(words_.lines().bytes(words_.rank(), line), input_.data(), input_.size());
  }
  words_.post_call(call);
  call_ = call;
  return {};
}

Status LineCalls::wait() {
  const int line = LineWords::Protocol::line_of(call_);
  if (!row(operation_).has_root) {
    RONDE_RETURN_IF_ERROR(words_.await(LineWords::For::kAll, call_));
    read(line);
    return {};
  }
  if (words_.rank() == root_) {
    if (output_ != input_.data() && !input_.empty()) {
      std::memcpy(output_, words_.lines().bytes(root_, line), input_.size());
    }
    return {};
  }
  RONDE_RETURN_IF_ERROR(words_.await(LineWords::For::kRoot, call_, root_));
  if (!input_.empty()) {
    std::memcpy(output_, words_.lines().bytes(root_, line), input_.size());
  }
  words_.post_call(call_);
  return {};
}

void LineCalls::read(int line) {
  if (kernels_ != nullptr && elements_ > 0) {
    const collectives::ScopedFloatingPointMode mode;
    kernels_->of_host(sources_[line], {&output_, 1}, elements_, scaling_);
  }
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < bytes_of_rank_.size(); ++rank) {
    if (bytes_of_rank_[rank] == 0) continue;
    std::memcpy(gathered_.data() + at, words_.lines().bytes(base::narrow<std::int32_t>(rank), line),
                bytes_of_rank_[rank]);
    at += bytes_of_rank_[rank];
  }
}

// ---- agreeing ----

Result<std::unique_ptr<Prepared>> Prepared::make(std::shared_ptr<Engine> engine,
                                                 Submission submission) {
  RONDE_RETURN_IF_ERROR(engine->usable());
  const base::OperationRow& is = row(submission.signature.operation);
  if (is.has_own_rows() || is.on_streams || submission.signature.device >= 0) {
    return Status::error(
        Code::kUnsupported,
        "'" + submission.name + "': " + std::string(is.name) +
            (is.has_own_rows() ? " has rows that differ from call to call" : " of a device") +
            " and cannot be prepared: use the ordinary operation");
  }
  if (is.makes_result()) submission.views.front().output = nullptr;  // see gathered()
  RONDE_ASSIGN_OR_RETURN(const LocalTensorPtr tensor,
                         check_submission(Submission(submission), engine->rank(), engine->size()));
  std::vector<std::byte> mine = statement_of(*tensor);
  RONDE_ASSIGN_OR_RETURN(
      const auto said, engine->submit(agreement(base::kExchange, "prepare " + tensor->name, mine)));
  RONDE_RETURN_IF_ERROR(engine->wait(*said));
  RONDE_ASSIGN_OR_RETURN(const auto statements,
                         statements_of({said->output.data(), said->output.size()}));
  RONDE_ASSIGN_OR_RETURN(auto agreed, agree_on(tensor->name, statements));
  // One that has joined would never come to the lines: the ordinary way goes on without it.
  const bool all_are_here = std::cmp_equal(statements.size(), engine->size());
  std::unique_ptr<Prepared> made(
      new Prepared(std::move(engine), std::move(submission), std::move(agreed)));
  if (all_are_here) RONDE_RETURN_IF_ERROR(made->make_lines(*tensor));
  return made;
}

// The same on all ranks, as far as the agreement decides; the leader may have no room.
Status Prepared::make_lines(const LocalTensor& tensor) {
  const Signature& is = agreed_.signature;
  std::vector<std::size_t> bytes_of_rank;
  const bool gathers = row(is.operation).makes_result();
  if (gathers) {
    const std::int64_t bytes = row_elements(is.shape).value() * base::size_of(is.dtype);
    for (const std::int64_t rows : agreed_.first_dimensions) {
      bytes_of_rank.push_back(base::narrow<std::size_t>(rows * bytes));
    }
  }
  const std::size_t most = LineCalls::most_bytes(tensor, bytes_of_rank);
  // Weights lie with the data of the ordinary way alone.
  if (most > Lines::kMostBytes || is.weighted || is.compression != base::Compression::kNone) {
    return {};
  }
  RONDE_ASSIGN_OR_RETURN(const auto lines, engine_->make_lines(tensor.name, most));
  if (!lines) return {};
  lines_ = std::make_unique<LineCalls>(engine_->line_host(), *lines, agreed_, tensor,
                                       std::move(bytes_of_rank));
  return {};
}

Result<std::optional<Lines>> Engine::make_lines(const std::string& name, std::size_t most) {
  if (!sums_in_rank_order()) return std::optional<Lines>();
  // Those of a process set lie among its leader's of the job.
  Engine& job = within_ == nullptr ? *this : *within_->job;
  const std::span<std::byte> arenas = job.job_->board().arenas();
  std::int64_t place = -1;
  // What meets in lines is summed without having been announced, so nobody could refuse it.
  if (local_rank_ == kLeader && !checks_finite_) {
    const auto made = job.line_memory_.make(memory_, arenas, local_size(), most);
    if (made.ok()) place = *made;
    if (!made.ok()) {
      log_.info("prepared '" + name + "' takes the ordinary way: " + made.status().message());
    }
  }
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(&place, 1));
  RONDE_ASSIGN_OR_RETURN(const auto told,
                         submit(agreement(Operation::kBroadcast, "prepare " + name, bytes)));
  RONDE_RETURN_IF_ERROR(wait(*told));
  if (place < 0) return std::optional<Lines>();
  return std::optional(Lines(arenas.subspan(static_cast<std::size_t>(place)), local_size(), most));
}

Prepared::~Prepared() {
  if (!engine_->usable().ok()) {  // in a forked child the lines are the parent's
    [[maybe_unused]] LineCalls* const of_parent = lines_.release();
    return;
  }
  if (started_ && work_ != nullptr) engine_->settle(*work_, std::nullopt);
}

// ---- calls ----

Status Prepared::wrong(const char* what) const {
  return Status::error(Code::kInvalidArgument, "prepared '" + submission_.name + "': " + what);
}

Status Prepared::start() {
  if (started_) return wrong("start() is called twice: call wait() between them");
  if (lines_ != nullptr) {
    RONDE_RETURN_IF_ERROR(engine_->line_usable());
    RONDE_RETURN_IF_ERROR(engine_->told(lines_->start()));
  } else {
    work_.reset();
    RONDE_ASSIGN_OR_RETURN(work_, engine_->submit(submission_));
  }
  started_ = true;
  return {};
}

Status Prepared::wait() {
  if (!started_) return wrong("wait() without a call: call start() before it");
  if (lines_ == nullptr) {
    Status done = engine_->wait(*work_);
    started_ = !work_->completion.done();
    return done;
  }
  started_ = false;
  RONDE_RETURN_IF_ERROR(engine_->line_usable());
  return engine_->told(lines_->wait());
}

Status Prepared::run() {
  RONDE_RETURN_IF_ERROR(start());
  return wait();
}

Result<Prepared::Gathered> Prepared::gathered() const {
  if (!row(agreed_.signature.operation).makes_result()) {
    return wrong("its result is in the memory of its request");
  }
  if (started_ || (lines_ == nullptr && work_ == nullptr)) {
    return wrong("there is no result: call start() and wait() before");
  }
  if (lines_ == nullptr) {  // of this call's ranks, some of which may have joined since
    if (work_->output_shape.empty()) return wrong("there is no result: its last call has failed");
    return Gathered{work_->output.data(), work_->output_shape, work_->output_dtype};
  }
  base::Shape shape = agreed_.signature.shape;
  shape.front() = 0;
  for (const std::int64_t rows : agreed_.first_dimensions) shape.front() += rows;
  return Gathered{lines_->gathered().data(), std::move(shape), agreed_.signature.dtype};
}

}  // namespace ronde::runtime
