// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/open_line.h"

#include <utility>

#include "runtime/engine/engine.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;
using collectives::Lines;

Result<std::unique_ptr<OpenLine>> OpenLine::make(std::shared_ptr<Engine> engine,
                                                 const std::string& name) {
  RONDE_ASSIGN_OR_RETURN(const auto lines, engine->make_lines(name, Lines::kMostBytes));
  if (!lines) return std::unique_ptr<OpenLine>();
  LineHost host = engine->line_host();
  return std::unique_ptr<OpenLine>(new OpenLine(std::move(engine), std::move(host), *lines, name));
}

OpenLine::OpenLine(std::shared_ptr<Engine> engine, LineHost host, const Lines& lines,
                   const std::string& name)
    : engine_(std::move(engine)),
      calls_(std::make_unique<OpenCalls>(std::move(host), lines, "prepared '" + name + "'")) {}

OpenLine::~OpenLine() {
  if (!engine_->usable().ok()) {  // in a forked child the line is the parent's
    [[maybe_unused]] OpenCalls* const of_parent = calls_.release();
    return;
  }
  calls_->words().leave();
}

Status OpenLine::start(const Call& call) {
  LineWords& words = calls_->words();
  const auto wrong = [&](const std::string& problem) {
    return Status::error(Code::kInvalidArgument, words.what() + ": " + problem);
  };
  RONDE_RETURN_IF_ERROR(words.usable());
  RONDE_RETURN_IF_ERROR(words.may_begin());
  if (started_) return wrong("a call is started before the last has ended: wait for it");
  const base::OperationRow& is = row(call.operation);
  const bool moves = !is.is_barrier();
  const bool reduces = is.reduces;
  if (!meets_openly(is)) {
    return wrong("only allreduces, broadcasts and barriers meet in a line");
  }
  const std::int64_t size = base::size_of(call.dtype);
  if (call.elements < 0 || call.elements > std::int64_t{Lines::kMostBytes} / size) {
    return wrong(std::to_string(call.elements) + " elements: a call has up to " +
                 std::to_string(Lines::kMostBytes) + " bytes");
  }
  if (reduces && !base::is_defined(call.dtype, call.op)) {
    return wrong(std::string(base::name_of(call.op)) + " is not defined for " +
                 std::string(base::name_of(call.dtype)));
  }
  if (moves && (call.root < 0 || call.root >= words.ranks())) return wrong("root is no rank");
  if (moves && call.elements > 0 &&
      ((calls_->gives(call) && call.input == nullptr) ||
       ((reduces || !calls_->gives(call)) && call.output == nullptr))) {
    return wrong("the memory is a null pointer");
  }
  calls_->post(call);
  started_ = true;
  waits_ = false;
  return {};
}

Result<OpenLine::Met> OpenLine::wait(base::Nanoseconds patience) {
  LineWords& words = calls_->words();
  RONDE_RETURN_IF_ERROR(words.usable());
  if (!started_) {
    return Status::error(Code::kInvalidArgument, words.what() + ": nothing is started to wait for");
  }
  RONDE_ASSIGN_OR_RETURN(const bool here, waits_ ? words.await_on(words.after(patience))
                                                 : words.await_for(calls_->number(), patience));
  waits_ = true;
  if (!here) return Met::kNotYet;
  started_ = false;
  return calls_->meet() ? Met::kEqual : Met::kDiffers;
}

}  // namespace ronde::runtime
