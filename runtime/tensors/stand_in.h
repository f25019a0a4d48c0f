// SPDX-License-Identifier: Apache-2.0
// What a rank that has joined gives to an operation of the others: a tensor of its own that changes
// no result.
//
// Thread safety: pure, but for the memory that it allocates.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/tensors/local_tensor.h"
#include "runtime/tensors/signature.h"

namespace ronde::runtime {

// Returns a tensor that owns its memory, with a work that nobody waits for. Where something is
// reduced it holds the neutral element: a -0 for sums of floating types, which leaves even the sign
// of a zero; it gives no rows to a gathered result and to no rank, and drops what it receives.
// Throws std::bad_alloc.
[[nodiscard]] LocalTensorPtr stand_in_for(const std::string& name, const AgreedTensor& agreed,
                                          std::int32_t rank, std::int32_t size);

}  // namespace ronde::runtime
