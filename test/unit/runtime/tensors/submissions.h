// SPDX-License-Identifier: Apache-2.0
// Submissions of four ranks, and what becomes of them.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "runtime/tensors/submission.h"

namespace ronde::runtime {

inline constexpr std::int32_t kSize = 4;
inline constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// These are only addresses: nothing here reads or writes the memory.
inline std::byte* memory() {
  static std::array<std::byte, 4096> bytes{};
  return bytes.data();
}

// An address where no memory is.
inline std::byte* address(std::uintptr_t where) {
  return reinterpret_cast<std::byte*>(where);  // NOLINT(performance-no-int-to-ptr)
}

inline Submission of(Operation operation, base::Shape shape) {
  Submission submission;
  submission.name = "t";
  submission.signature.operation = operation;
  submission.signature.op = base::ReduceOp::kSum;
  submission.signature.shape = std::move(shape);
  submission.views[0].input = memory();
  submission.views[0].output = memory() + 2048;
  return submission;
}

inline LocalTensorPtr accepted(const Submission& submission, std::int32_t rank = 0,
                               std::int32_t size = kSize) {
  const auto checked = check_submission(Submission(submission), rank, size);
  EXPECT_TRUE(checked.ok()) << checked.status().message();
  return checked.ok() ? *checked : std::make_shared<LocalTensor>();
}

inline std::string refused(const Submission& submission, std::int32_t rank = 0,
                           std::int32_t size = kSize) {
  const auto checked = check_submission(Submission(submission), rank, size);
  EXPECT_FALSE(checked.ok());
  EXPECT_EQ(checked.status().code(), base::Code::kInvalidArgument);
  return checked.status().message();
}

inline constexpr Operation kWithMemory[] = {Operation::kAllreduce, Operation::kBroadcast,
                                            Operation::kAllgather, Operation::kReduceScatter,
                                            Operation::kAllToAll};

}  // namespace ronde::runtime
