// SPDX-License-Identifier: Apache-2.0
// Submissions of vectors in the memory of a device. The header needs no GoogleTest, since programs
// for machines with nothing but a GPU use it too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/tensors/submission.h"

namespace ronde::testing {

// Returns a submission of a vector of float from `input` to `output`, or in place in `output` if
// `input` is nullptr.
inline runtime::Submission device_vector(const std::string& name, runtime::Operation operation,
                                         std::int64_t elements, const void* input, void* output,
                                         void* stream = nullptr, void* event = nullptr) {
  runtime::Submission submission;
  submission.name = name;
  submission.place = "test.cc:3";
  submission.signature.operation = operation;
  submission.signature.op = base::ReduceOp::kSum;
  submission.signature.device = 0;
  submission.signature.shape = {elements};
  submission.views[0].input = static_cast<const std::byte*>(input == nullptr ? output : input);
  submission.views[0].output = static_cast<std::byte*>(output);
  submission.readiness = {{stream, event}};
  return submission;
}

}  // namespace ronde::testing
