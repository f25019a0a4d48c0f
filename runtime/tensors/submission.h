// SPDX-License-Identifier: Apache-2.0
// What a caller hands to the engine, and whether it can ever work: checked here, before anybody
// else hears of it. Pure: looks at the caller's numbers and addresses, not at memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/tensors/signature.h"
#include "runtime/tensors/tensor_table.h"

namespace ronde::runtime {

// One tensor that is ready here, or one group, as the caller describes it.
struct Submission {
  std::string name;
  std::string place;  // "file:line" of the caller; may be empty
  // Of a group: what its members have in common, and their names and shapes; its own shape is
  // filled in by submit().
  Signature signature;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  Readiness ready;  // of a device
  // All-to-all: the rows for each rank. Empty: as many for every one.
  std::vector<std::int64_t> splits;
  // Of a group: one for each member, instead of input and output.
  struct Memory {
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    Readiness ready;
  };
  std::vector<Memory> members;
  bool will_wait = false;  // the caller's next call is wait(): do not wake the background thread
};

// Makes one submission of several tensors, which are one unit from here on: its name is "group of"
// and the first one's. Not empty. An error names the first tensor that does not say what the first
// says (operation, dtype, op, root, factors, compression).
base::Result<Submission> group_of(std::vector<Submission> tensors);

// The tensor that goes into the table. An error names the tensor (of a group, the member) and says
// what to change.
base::Result<LocalTensorPtr> check_submission(Submission submission, std::int32_t rank,
                                              std::int32_t size);

// Whether a checked tensor may be reduced in place on the board, as far as this rank can say: an
// allreduce into its own input, of more than `small` bytes and without compression, which lies in
// this rank's `arena`.
[[nodiscard]] bool may_reduce_in_place(const LocalTensor& tensor, std::span<const std::byte> arena,
                                       base::Bytes small);

}  // namespace ronde::runtime
