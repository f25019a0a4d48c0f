// SPDX-License-Identifier: Apache-2.0
// Whether two tensors in flight may share memory, for RONDE_CHECK=memory. Pure: reads addresses,
// never the memory there.
//
// Thread safety: every function may be called from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "base/tensor.h"
#include "runtime/tensors/signature.h"

namespace ronde::runtime {

// What a tensor is and where it lies, for the length of a call. Fields as in LocalTensor.
struct TensorMemory {
  const std::string& name;
  const std::string& place;
  const Signature& signature;
  std::span<const base::TensorView> views;
};

// Returns kInvalidArgument, with the names and the places of both, if one of them reads or writes
// what the other writes on `rank` of `size`: which of the two comes first is not defined.
base::Status check_apart(const TensorMemory& in_flight, const TensorMemory& submitted,
                         std::int32_t rank, std::int32_t size);

}  // namespace ronde::runtime
