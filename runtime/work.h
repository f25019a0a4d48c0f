// SPDX-License-Identifier: Apache-2.0
// The handle of one operation on one rank, shared by the caller and the engine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "base/tensor.h"
#include "runtime/agent.h"

namespace ronde::runtime {

// Thread safety: the engine writes status and output before it ends the completion; whoever saw
// completion.done() may read them.
struct Work {
  std::string name;  // of the tensor, for error texts
  Completion completion;
  base::Status status;
  // The result of an allgather, whose size only the runtime knows.
  std::vector<std::byte> output;
  base::Shape output_shape;
  base::DType output_dtype = base::DType::kF32;
};

}  // namespace ronde::runtime
