// SPDX-License-Identifier: Apache-2.0
// The submissions of tests of operations, besides those in engines.h.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "test/support/engines.h"

namespace ronde::testing {

template <typename T>
std::byte* bytes_of(std::vector<T>& data) {
  return reinterpret_cast<std::byte*>(data.data());
}

inline base::Status submit_and_wait(runtime::Engine& engine, runtime::Submission submission) {
  const auto work = engine.submit(std::move(submission));
  return work.ok() ? engine.wait(**work) : work.status();
}

inline runtime::Submission group_of_vectors(std::vector<std::vector<float>>& data,
                                            base::ReduceOp op) {
  std::vector<runtime::Submission> tensors;
  for (std::size_t i = 0; i < data.size(); ++i) {
    tensors.push_back(allreduce_of("t" + std::to_string(i), data[i], op));
  }
  auto group = runtime::group_of(std::move(tensors));
  EXPECT_TRUE(group.ok()) << group.status().message();
  return *std::move(group);
}

}  // namespace ronde::testing
