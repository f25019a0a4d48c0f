// SPDX-License-Identifier: Apache-2.0
// What tests of deadlocks have in common. They redirect the standard error of the process.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "test/support/engines.h"

namespace ronde::runtime {

inline testing::EngineOptions with_grace(const std::string& grace,
                                         const std::vector<std::int32_t>& leaders) {
  testing::EngineOptions options;
  options.environment = {"RONDE_DEADLOCK_GRACE_SECONDS=" + grace};
  options.shape = base::JobShape::of_leaders(leaders).value();
  return options;
}

inline Submission placed(const std::string& name, std::vector<float>& data,
                         const std::string& place) {
  Submission submission = testing::allreduce_of(name, data);
  submission.place = place;
  return submission;
}

// Submits and waits, in the calling thread.
inline base::Status wait_for_one(Engine& engine, const std::string& name,
                                 const std::string& place = "") {
  std::vector<float> data(10, 1.0F);
  auto work = engine.submit(placed(name, data, place));
  return work.ok() ? engine.wait(**work) : work.status();
}

inline std::string said_by(const testing::EngineOptions& options, int ranks,
                           const std::function<void(int, Engine&)>& body) {
  ::testing::internal::CaptureStderr();
  const auto engines = testing::open_engines(ranks, options);
  testing::on_ranks(ranks, [&](int rank) { body(rank, *engines[static_cast<std::size_t>(rank)]); });
  testing::on_ranks(ranks,
                    [&](int rank) { engines[static_cast<std::size_t>(rank)]->close().ignore(); });
  return ::testing::internal::GetCapturedStderr();
}

inline std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace ronde::runtime
