// SPDX-License-Identifier: Apache-2.0
// What tests of process sets do again and again.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/engine.h"
#include "test/support/engines.h"

namespace ronde::testing {

using Ranks = std::vector<std::int32_t>;

// Opens a set, which must succeed; nullptr on a rank outside.
inline EnginePtr set_of(runtime::Engine& engine, const Ranks& ranks, const std::string& name) {
  auto set = engine.subset(ranks, name);
  EXPECT_TRUE(set.ok()) << set.status().message();
  return set.ok() ? *set : nullptr;
}

// Submits, and waits.
inline base::Status finish(runtime::Engine& engine, runtime::Submission submission) {
  const auto work = engine.submit(std::move(submission));
  return work.ok() ? engine.wait(**work) : work.status();
}

inline std::vector<float> filled(std::size_t length, float value) {
  return std::vector<float>(length, value);
}

}  // namespace ronde::testing
