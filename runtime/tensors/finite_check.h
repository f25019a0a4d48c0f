// SPDX-License-Identifier: Apache-2.0
// RONDE_CHECK=finite: whether what this rank gives to a sum is numbers, before it spreads to the
// other ranks. Reads the caller's memory, nothing else.
//
// Thread safety: every function may be called from any thread.
#pragma once

#include <string>

#include "runtime/tensors/local_tensor.h"

namespace ronde::runtime {

// The first element of a checked tensor that is not finite: "nan at element 7 of 100", in a group
// with "of 'fc1/bias'". Empty where there is none, where nothing is reduced, and for the memory of
// a device.
[[nodiscard]] std::string not_finite_in(const LocalTensor& tensor);

}  // namespace ronde::runtime
