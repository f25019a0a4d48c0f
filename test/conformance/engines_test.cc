// SPDX-License-Identifier: Apache-2.0
// Engines in one process do everything in cases.h: on hosts of every layout that the environment
// names (test/support/engines.h), and by every algorithm between hosts.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "test/conformance/cases.h"
#include "test/support/engines.h"

namespace ronde::conformance {
namespace {

using runtime::Engine;
using runtime::Submission;

Submission submission_of(Running& running, std::size_t tensor) {
  const Case& of = running.of();
  Submission submission;
  submission.name = of.is_group() ? of.name + ": " + std::to_string(tensor) : of.name;
  submission.place = "cases.h:1";
  submission.signature.operation = of.operation;
  submission.signature.dtype = of.dtype();
  submission.signature.op = of.what.op;
  submission.signature.shape = of.shape(tensor);
  submission.signature.root = of.root;
  submission.signature.prescale = of.what.prescale;
  submission.signature.postscale = of.what.postscale;
  submission.signature.compression = of.what.compression;
  submission.views[0].input = running.input(tensor);
  submission.views[0].output = running.output(tensor);
  submission.splits = of.splits;
  return submission;
}

// One operation that an engine has in flight.
struct InFlight {
  Engine::WorkPtr work;
  std::unique_ptr<runtime::BoardBuffer> board;
};

InFlight start(Engine& engine, Running& running) {
  const Case& of = running.of();
  InFlight started;
  std::vector<Submission> submissions;
  for (std::size_t i = 0; i < of.tensors.size(); ++i) {
    submissions.push_back(submission_of(running, i));
  }
  if (of.memory == Case::Memory::kOnBoard) {
    started.board = engine.allocate(base::Bytes(std::ssize(of.tensors[0].input))).value();
    if (!of.tensors[0].input.empty()) {
      std::memcpy(started.board->bytes().data(), running.input(0), of.tensors[0].input.size());
    }
    submissions[0].views[0].input = started.board->bytes().data();
    submissions[0].views[0].output = started.board->bytes().data();
  }
  auto submission = of.is_group() ? runtime::group_of(std::move(submissions))
                                  : base::Result<Submission>(std::move(submissions[0]));
  auto work = engine.submit(*std::move(submission));
  EXPECT_TRUE(work.ok()) << of.name << ": " << work.status().message();
  if (work.ok()) started.work = std::move(*work);
  return started;
}

void finish(Engine& engine, Running& running, const InFlight& started) {
  if (started.work == nullptr) return;
  const Case& of = running.of();
  const base::Status done = engine.wait(*started.work);
  ASSERT_TRUE(done.ok()) << of.name << ": " << done.message();
  if (started.board != nullptr && !of.tensors[0].input.empty()) {
    std::memcpy(running.output(0), started.board->bytes().data(), of.tensors[0].input.size());
  }
  if (of.memory == Case::Memory::kResult) {
    const runtime::OutputBuffer& output = started.work->output;
    running.result.assign(output.data(), output.data() + output.size());
    running.received = started.work->received_splits;
    base::Shape shape = of.shape(0);
    shape[0] = std::ssize(of.tensors[0].expected) / base::size_of(of.dtype()) / of.width;
    EXPECT_EQ(started.work->output_shape, shape);
    EXPECT_EQ(started.work->output_dtype, of.dtype());
  }
  EXPECT_EQ(running.difference(), "") << of.name;
}

// Ranks, and the algorithm; a named one makes every rank a host where all would share one.
class Engines : public ::testing::TestWithParam<std::tuple<int, const char*>> {};

TEST_P(Engines, DoEveryOperationAsTheOrderRuleSays) {
  const auto [ranks, algorithm] = GetParam();
  base::JobShape shape = testing::shape_of_environment(ranks);
  if (shape.hosts() == 1 && std::string(algorithm) != "auto") {
    std::vector<std::int32_t> alone(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) alone[static_cast<std::size_t>(rank)] = rank;
    shape = base::JobShape::of_leaders(alone).value();
  }
  Hosts hosts;
  for (std::int32_t host = 0; host < shape.hosts(); ++host) {
    hosts.emplace_back(shape.ranks_of(host).begin(), shape.ranks_of(host).end());
  }
  testing::EngineOptions options;
  options.environment = {std::string("RONDE_ALGORITHM=") + algorithm};
  testing::run_job(ranks, options, [&](int rank, Engine& engine) {
    const std::vector<Case> cases = Cases(hosts, rank).all(301, 1 << 19);
    std::vector<Running> all;
    for (const Case& one : cases) all.emplace_back(one);
    for (int round = 0; round < 2; ++round) {  // by name, then by the plan
      std::vector<InFlight> works;
      for (Running& running : all) {
        running.prepare();
        works.push_back(start(engine, running));
      }
      for (std::size_t i = 0; i < all.size(); ++i) finish(engine, all[i], works[i]);
    }
    EXPECT_GT(engine.statistics().planned_requests, 0U);
  });
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<int, const char*>>& one) {
  return std::string(std::get<1>(one.param)) + "At" + std::to_string(std::get<0>(one.param));
}
INSTANTIATE_TEST_SUITE_P(Alone, Engines, ::testing::Values(std::tuple(1, "auto")), name_of);
INSTANTIATE_TEST_SUITE_P(Together, Engines,
                         ::testing::Combine(::testing::Values(2, 3, 5),
                                            ::testing::Values("auto", "ring", "direct", "gather")),
                         name_of);

}  // namespace
}  // namespace ronde::conformance
