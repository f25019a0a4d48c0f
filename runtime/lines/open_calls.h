// SPDX-License-Identifier: Apache-2.0
// Calls in a line on the board whose form may differ from one to the next: each rank shows with its
// bytes what it calls, and all compare that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/operations.h"
#include "collectives/in_host/lines.h"
#include "runtime/lines/line_words.h"

namespace ronde::runtime {

// An allreduce, a broadcast or a barrier. `form` says everything about it that all ranks must have
// alike, so that calls that differ have other numbers.
struct OpenCall {
  std::uint64_t form = 0;
  base::Operation operation{};
  base::DType dtype = base::DType::kU8;
  base::ReduceOp op = base::ReduceOp::kSum;
  std::int32_t root = 0;
  std::int64_t elements = 0;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
};

// Whether an operation is one that meets in such a line.
[[nodiscard]] bool meets_openly(const base::OperationRow& is);

// The calls of this rank in one line, each of which all ranks post.
//
// Thread safety: one thread at a time.
class OpenCalls {
 public:
  OpenCalls(LineHost host, const collectives::Lines& lines, std::string what,
            LineWords::Join join = LineWords::Join::kEndsIt);

  [[nodiscard]] LineWords& words() { return words_; }
  [[nodiscard]] collectives::Lines::Sequence number() const { return number_; }
  [[nodiscard]] bool gives(const OpenCall& call) const;
  // Begins the next call, for which it reads the input. It has to be one that can be made.
  void post(const OpenCall& call);
  // All have posted it: whether their calls are equal. Then it has written the output, otherwise
  // nothing, on any rank.
  bool meet();

 private:
  void read(int line);

  LineWords words_;
  collectives::Lines::Sequence number_ = 0;
  OpenCall call_;
  std::vector<const std::byte*> sources_[2];  // the lines of all ranks
};

}  // namespace ronde::runtime
