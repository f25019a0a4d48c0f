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

Result<std::unique_ptr<OpenLine>> OpenLine::make(std::shared_ptr<Engine> engine,
                                                 const std::string& name) {
  RONDE_ASSIGN_OR_RETURN(const auto lines, engine->make_lines(name, Lines::kMostBytes));
  if (!lines) return std::unique_ptr<OpenLine>();
  LineHost host = engine->line_host();
  return std::unique_ptr<OpenLine>(new OpenLine(std::move(engine), std::move(host), *lines, name));
}

OpenLine::OpenLine(std::shared_ptr<Engine> engine, LineHost host, const Lines& lines,
                   const std::string& name)
    : engine_(std::move(engine)), words_(std::move(host), lines, name) {
  for (const int line : {0, 1}) {
    for (std::int32_t rank = 0; rank < lines.ranks(); ++rank) {
      sources_[line].push_back(lines.bytes(rank, line));
    }
  }
}

OpenLine::~OpenLine() { words_.lines().left(words_.rank()).store(1, std::memory_order_release); }

bool OpenLine::gives(const Call& call) const {
  return call.elements > 0 && (row(call.operation).reduces || words_.rank() == call.root);
}

Status OpenLine::start(const Call& call) {
  const auto wrong = [&](const std::string& what) {
    return Status::error(Code::kInvalidArgument, "'" + words_.name() + "': " + what);
  };
  RONDE_RETURN_IF_ERROR(words_.usable());
  RONDE_RETURN_IF_ERROR(words_.may_begin());
  if (started_) return wrong("a call is started before the last has ended: wait for it");
  const base::OperationRow& is = row(call.operation);
  const bool moves = !is.is_barrier();
  const bool reduces = is.reduces;
  if (is.on_streams || (moves && (is.out != base::Extent::kTensor || reduces == is.has_root))) {
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
  if (moves && (call.root < 0 || call.root >= words_.ranks())) return wrong("root is no rank");
  if (moves && call.elements > 0 &&
      ((gives(call) && call.input == nullptr) ||
       ((reduces || !gives(call)) && call.output == nullptr))) {
    return wrong("the memory is a null pointer");
  }
  call_ = call;
  const int line = LineWords::Protocol::line_of(++number_);
  const Lines& lines = words_.lines();
  lines.set_form(words_.rank(), line, call.form);
  if (moves && gives(call)) {
    std::memcpy(lines.bytes(words_.rank(), line), call.input,
                static_cast<std::size_t>(call.elements * size));
  }
  words_.post_call(number_);
  started_ = true;
  waits_ = false;
  return {};
}

Result<OpenLine::Met> OpenLine::wait(base::Nanoseconds patience) {
  if (!started_) {
    return Status::error(Code::kInvalidArgument,
                         "'" + words_.name() + "': nothing is started to wait for");
  }
  RONDE_ASSIGN_OR_RETURN(const bool here, waits_ ? words_.await_on(words_.after(patience))
                                                 : words_.await_for(number_, patience));
  waits_ = true;
  if (!here) return Met::kNotYet;
  started_ = false;
  const int line = LineWords::Protocol::line_of(number_);
  for (std::int32_t rank = 0; rank < words_.ranks(); ++rank) {
    if (words_.lines().form(rank, line) != call_.form) return Met::kDiffers;
  }
  read(line);
  return Met::kEqual;
}

void OpenLine::read(int line) {
  if (row(call_.operation).is_barrier() || call_.elements == 0) return;
  if (row(call_.operation).has_root) {
    if (gives(call_)) return;
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

}  // namespace ronde::runtime
