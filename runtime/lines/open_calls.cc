// SPDX-License-Identifier: Apache-2.0
#include "runtime/lines/open_calls.h"

#include <cstring>
#include <utility>

#include "collectives/kernels/floating_point_mode.h"
#include "collectives/kernels/reduce.h"

namespace ronde::runtime {

using collectives::Lines;

bool meets_openly(const base::OperationRow& is) {
  if (is.on_streams) return false;
  return is.is_barrier() || (is.out == base::Extent::kTensor && is.reduces != is.has_root);
}

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

}  // namespace ronde::runtime
