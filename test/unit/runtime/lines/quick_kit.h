// SPDX-License-Identifier: Apache-2.0
// What tests of calls that meet in lines of their own accord have in common.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "test/support/engines.h"

namespace ronde::runtime {

using QuickBody = std::function<void(int, Engine&)>;

inline void with_quick(int ranks, const QuickBody& body, const std::string& after = "3") {
  testing::EngineOptions options;
  options.environment = {"RONDE_LINES_AFTER=" + after};
  options.shape = base::JobShape::one_host(ranks);
  testing::run_job(ranks, options, body);
}

inline void expect_done(const base::Status& status) {
  EXPECT_TRUE(status.ok()) << status.message();
}

inline float ranks_sum(int ranks, float factor) {
  return factor * static_cast<float>(ranks * (ranks + 1)) / 2;
}

// One blocking sum of `size` elements, in which each rank gives its number, from 1, times `factor`.
inline void sum_once(Engine& engine, int rank, int ranks, const std::string& name, float factor,
                     std::size_t size = 3) {
  std::vector<float> data(size, factor * static_cast<float>(rank + 1));
  expect_done(engine.run(testing::allreduce_of(name, data)));
  EXPECT_EQ(data, std::vector<float>(size, ranks_sum(ranks, factor))) << name;
}

// How many batches `body` takes; every rank calls it.
template <typename Body>
std::uint64_t batches_of(Engine& engine, const Body& body) {
  const std::uint64_t before = engine.statistics().batches;
  body();
  return engine.statistics().batches - before;
}

}  // namespace ronde::runtime
