// SPDX-License-Identifier: Apache-2.0
// A job of engines in this process, one thread per rank: what most tests of the runtime run on.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "runtime/engine/engine.h"
#include "runtime/job/local_job.h"
#include "test/support/ucx_ends.h"

namespace ronde::testing {

using EnginePtr = std::shared_ptr<runtime::Engine>;

struct EngineOptions {
  std::vector<std::string> environment;
  collectives::FaultPlan faults;
  // The ranks that share a host; without it the environment decides.
  std::optional<base::JobShape> shape;
  std::shared_ptr<const base::Clock> clock = std::make_shared<base::SteadyClock>();
};

// Runs body(rank) in one thread per rank and joins them.
inline void on_ranks(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

// Returns the job shape that the environment names, so that the same tests run on jobs of every
// shape. "pairs" has two ranks on each host, "single" one. "chain" has one, and a tree in which
// every host has one child. With "lonely" the last rank is alone on its host, and with "by_node"
// two hosts take turns. Without a name all ranks share a host.
inline base::JobShape shape_of_environment(int ranks) {
  const char* wanted = std::getenv("RONDE_TEST_HOSTS");
  const std::string layout = wanted == nullptr ? "" : wanted;
  EXPECT_TRUE(layout.empty() || layout == "pairs" || layout == "single" || layout == "chain" ||
              layout == "lonely" || layout == "by_node")
      << layout;
  std::vector<std::int32_t> leaders;
  for (int rank = 0; rank < ranks; ++rank) {
    int leader = 0;
    if (layout == "pairs") leader = rank / 2 * 2;
    if (layout == "single" || layout == "chain") leader = rank;
    if (layout == "lonely" && rank == ranks - 1) leader = rank;
    if (layout == "by_node") leader = rank % 2;
    leaders.push_back(leader);
  }
  return base::JobShape::of_leaders(leaders).value();
}

inline std::int32_t fan_in_of_environment() {
  const char* wanted = std::getenv("RONDE_TEST_HOSTS");
  return wanted != nullptr && std::string(wanted) == "chain" ? 1 : runtime::HostTree::kFanIn;
}

// The transports that the environment names, so that the same tests run over UCX; without a name,
// and where a test wants faults, the job makes its own.
inline runtime::LocalJob::Transports transports_of_environment(
    int ranks, const collectives::FaultPlan& faults) {
  const char* wanted = std::getenv("RONDE_TEST_TRANSPORT");
  const bool faulty = faults.max_delay > 0 || faults.synchronous_sends || !faults.cuts.empty() ||
                      !faults.wrong_lengths.empty() ||
                      faults.largest_tag != collectives::FaultPlan{}.largest_tag;
  if (wanted == nullptr || faulty) return {};
  EXPECT_EQ(std::string(wanted), "ucx");
  const auto ends = std::make_shared<std::vector<std::unique_ptr<collectives::Transport>>>(
      collectives::ucx_ends(ranks, std::chrono::seconds(30)));
  return [ends](std::int32_t rank) { return std::move((*ends)[static_cast<std::size_t>(rank)]); };
}

// Opens all engines of a job.
inline std::vector<EnginePtr> open_engines(int ranks, const EngineOptions& options = {}) {
  const base::JobShape shape = options.shape ? *options.shape : shape_of_environment(ranks);
  const auto job = runtime::LocalJob::create(
      shape, fan_in_of_environment(),
      std::make_shared<collectives::LocalHub>(shape.ranks(), options.faults),
      transports_of_environment(shape.ranks(), options.faults));
  EXPECT_TRUE(job.ok()) << job.status().message();
  std::vector<EnginePtr> engines(static_cast<std::size_t>(ranks));
  on_ranks(ranks, [&](int rank) {
    const auto open = [&](const base::Config& config, const base::Clock& clock) {
      return (*job)->join(rank, config, clock);
    };
    auto engine = runtime::Engine::open(open, options.environment, options.clock);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engines[static_cast<std::size_t>(rank)] = std::move(*engine);
  });
  return engines;
}

// Opens a job, runs body(rank, engine) per rank, and closes every engine, which must succeed.
inline void run_job(int ranks, const EngineOptions& options,
                    const std::function<void(int, runtime::Engine&)>& body) {
  const std::vector<EnginePtr> engines = open_engines(ranks, options);
  on_ranks(ranks, [&](int rank) {
    runtime::Engine& engine = *engines[static_cast<std::size_t>(rank)];
    body(rank, engine);
    const base::Status closed = engine.close();
    EXPECT_TRUE(closed.ok()) << "rank " << rank << ": " << closed.message();
  });
}

inline void run_job(int ranks, const std::function<void(int, runtime::Engine&)>& body) {
  run_job(ranks, EngineOptions{}, body);
}

// Returns an in-place allreduce of a vector of float.
inline runtime::Submission allreduce_of(const std::string& name, std::vector<float>& data,
                                        base::ReduceOp op = base::ReduceOp::kSum) {
  runtime::Submission submission;
  submission.name = name;
  submission.place = "test.cc:1";
  submission.signature.operation = runtime::Operation::kAllreduce;
  submission.signature.dtype = base::DType::kF32;
  submission.signature.op = op;
  submission.signature.shape = {static_cast<std::int64_t>(data.size())};
  submission.views[0].input = reinterpret_cast<const std::byte*>(data.data());
  submission.views[0].output = reinterpret_cast<std::byte*>(data.data());
  return submission;
}

inline runtime::Submission broadcast_of(const std::string& name, std::vector<float>& data,
                                        std::int32_t root) {
  runtime::Submission submission = allreduce_of(name, data);
  submission.signature.operation = runtime::Operation::kBroadcast;
  submission.signature.root = root;
  return submission;
}

inline runtime::Submission allgather_of(const std::string& name, const std::vector<float>& data) {
  runtime::Submission submission;
  submission.name = name;
  submission.place = "test.cc:2";
  submission.signature.operation = runtime::Operation::kAllgather;
  submission.signature.dtype = base::DType::kF32;
  submission.signature.shape = {static_cast<std::int64_t>(data.size())};
  submission.views[0].input = reinterpret_cast<const std::byte*>(data.data());
  return submission;
}

inline runtime::Submission barrier_of(const std::string& name) {
  runtime::Submission submission;
  submission.name = name;
  submission.signature.operation = runtime::Operation::kBarrier;
  return submission;
}

}  // namespace ronde::testing
