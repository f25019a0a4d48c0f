// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/open_line.h"

#include <cstring>
#include <utility>

#include "collectives/kernels/floating_point_mode.h"
#include "collectives/kernels/reduce.h"
#include "runtime/engine/engine.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;
using collectives::Lines;

bool meets_openly(const base::OperationRow& is) {
  if (is.on_streams) return false;
  return is.is_barrier() || (is.out == base::Extent::kTensor && is.reduces != is.has_root);
}

// ---- the calls ----

OpenCalls::OpenCalls(LineHost host, const Lines& lines, std::string what, LineWords::Join join)
    : words_(std::move(host), lines, std::move(what), join) {
  for (const int line : {0, 1}) {
    for (std::int32_t rank = 0; rank < lines.ranks(); ++rank) {
      sources_[line].push_back(lines.bytes(rank, line));
    }
  }
}

bool OpenCalls::gives(const OpenCall& call) const {
  return call.elements > 0 && (row(call.operation).reduces || words_.rank() == call.root);
}

void OpenCalls::post(const OpenCall& call) {
  call_ = call;
  const int line = LineWords::Protocol::line_of(++number_);
  const Lines& lines = words_.lines();
  lines.set_form(words_.rank(), line, call.form);
  if (!row(call.operation).is_barrier() && gives(call)) {
    std::memcpy(lines.bytes(words_.rank(), line), call.input,
                static_cast<std::size_t>(call.elements * base::size_of(call.dtype)));
  }
  words_.post_call(number_);
}

bool OpenCalls::meet() {
  const int line = LineWords::Protocol::line_of(number_);
  for (std::int32_t rank = 0; rank < words_.ranks(); ++rank) {
    if (words_.lines().form(rank, line) != call_.form) return false;
  }
  read(line);
  return true;
}

void OpenCalls::read(int line) {
  if (row(call_.operation).is_barrier() || call_.elements == 0) return;
  if (row(call_.operation).has_root) {
    if (gives(call_) && (call_.output == nullptr || call_.output == call_.input)) return;
    std::memcpy(call_.output, words_.lines().bytes(call_.root, line),
                static_cast<std::size_t>(call_.elements * base::size_of(call_.dtype)));
    return;
  }
  const collectives::ScopedFloatingPointMode mode;
  const collectives::Scaling scaling =
      collectives::scaling_of({call_.dtype, call_.op}, words_.ranks());
  collectives::kernels_for(call_.dtype, call_.op)
      .of_host(sources_[line], {&call_.output, 1}, call_.elements, scaling);
}

// ---- the line ----

Result<std::unique_ptr<OpenLine>> OpenLine::make(std::shared_ptr<Engine> engine,
                                                 const std::string& name) {
  RONDE_ASSIGN_OR_RETURN(const auto lines, engine->make_lines(name, Lines::kMostBytes));
  if (!lines) return std::unique_ptr<OpenLine>();
  LineHost host = engine->line_host();
  return std::unique_ptr<OpenLine>(new OpenLine(std::move(engine), std::move(host), *lines, name));
}

OpenLine::OpenLine(std::shared_ptr<Engine> engine, LineHost host, const Lines& lines,
                   const std::string& name)
    : engine_(std::move(engine)), calls_(std::move(host), lines, "prepared '" + name + "'") {}

OpenLine::~OpenLine() {
  LineWords& words = calls_.words();
  words.lines().left(words.rank()).store(1, std::memory_order_release);
}

Status OpenLine::start(const Call& call) {
  LineWords& words = calls_.words();
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
      ((calls_.gives(call) && call.input == nullptr) ||
       ((reduces || !calls_.gives(call)) && call.output == nullptr))) {
    return wrong("the memory is a null pointer");
  }
  calls_.post(call);
  started_ = true;
  waits_ = false;
  return {};
}

Result<OpenLine::Met> OpenLine::wait(base::Nanoseconds patience) {
  LineWords& words = calls_.words();
  if (!started_) {
    return Status::error(Code::kInvalidArgument, words.what() + ": nothing is started to wait for");
  }
  RONDE_ASSIGN_OR_RETURN(const bool here, waits_ ? words.await_on(words.after(patience))
                                                 : words.await_for(calls_.number(), patience));
  waits_ = true;
  if (!here) return Met::kNotYet;
  started_ = false;
  return calls_.meet() ? Met::kEqual : Met::kDiffers;
}

}  // namespace ronde::runtime
