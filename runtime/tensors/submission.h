// SPDX-License-Identifier: Apache-2.0
// What a caller hands to the engine, and the check of whether it can ever work, which runs before
// the tensor is announced. Pure: reads the caller's numbers and addresses, never the memory there.
//
// Thread safety: every function may be called from any thread. The memory stays the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "runtime/tensors/local_tensor.h"

namespace ronde::runtime {

// Makes one submission of several tensors (at least one), which are one unit from then on, named
// "group of" and the first tensor's name. Returns an error that names the first tensor whose
// operation, dtype, op, root, factors or compression differ from the first one's.
base::Result<Submission> group_of(std::vector<Submission> tensors);

// Returns the tensor that goes into the table, or an error that names the tensor (in a group: the
// member) and tells the caller what to change.
base::Result<LocalTensorPtr> check_submission(Submission&& submission, std::int32_t rank,
                                              std::int32_t size);

// Whether other ranks may use a checked tensor where it lies on the board, as far as this rank
// knows: it must lie in this rank's `arena`, with more than `small` bytes and without compression;
// that of an allreduce is its own output.
[[nodiscard]] bool may_be_used_in_place(const LocalTensor& tensor, std::span<const std::byte> arena,
                                        base::Bytes small);

}  // namespace ronde::runtime
