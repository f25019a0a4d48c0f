// SPDX-License-Identifier: Apache-2.0
// Process sets through libronde.so: the facade, handles of ranks outside, the averager in a set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ronde/ronde.hpp>

#include "test/unit/bindings/local_ranks.h"

namespace {

using ronde::testing::on_ranks;
using ronde::testing::thrown_by;
using ::testing::HasSubstr;

TEST(ProcessSetsApi, AreEnginesOfSomeRanks) {
  on_ranks(3, [](ronde::Engine& engine) {
    ronde::Engine set = engine.subset({0, 2}, "pair");
    if (engine.rank() == 1) {
      EXPECT_EQ(set.size(), 0);
      EXPECT_EQ(set.rank(), -1);
      return;
    }
    EXPECT_EQ(set.size(), 2);
    EXPECT_EQ(set.rank(), engine.rank() / 2);
    EXPECT_EQ(set.rank_of_job(1), 2);
    EXPECT_EQ(set.rank_of_job(2), -1);
    EXPECT_EQ(engine.rank_of_job(2), 2);
    std::vector<float> data(1'000, static_cast<float>(engine.rank() + 1));
    set.allreduce_blocking("x", data, ronde::sum);
    EXPECT_EQ(data[999], 4.0F);
    EXPECT_THAT(set.describe(), HasSubstr("in shared memory"));
    EXPECT_EQ(set.statistics().tensors, 1U);
    ronde::Buffer<float> buffer(set, 10);
    EXPECT_EQ(buffer.size(), 10U);
    ronde::GradientAverager averager(set);
    std::vector<float> gradient(10, static_cast<float>(engine.rank()));
    const auto id = averager.add("g", std::span(gradient));
    averager.ready(id);
    averager.wait();
    EXPECT_EQ(gradient[0], 1.0F);
    set.close();
  });
}

TEST(ProcessSetsApi, RefuseEveryOperationOfARankOutside) {
  on_ranks(2, [](ronde::Engine& engine) {
    ronde::Engine set = engine.subset({0}, "lonely");
    if (engine.rank() == 0) return;
    std::vector<float> data(4);
    std::vector<float> share(1);
    const std::string expected = "this rank is not in process set 'lonely'";
    const std::vector<std::function<void()>> calls = {
        [&] { set.allreduce_blocking("x", data); },
        [&] { set.broadcast_blocking("x", data); },
        [&] { static_cast<void>(set.allgather_blocking("x", data)); },
        [&] { set.reduce_scatter_blocking("x", data, share); },
        [&] { static_cast<void>(set.all_to_all_blocking("x", data)); },
        [&] { set.barrier_blocking(); },
        [&] { static_cast<void>(set.statistics()); },
        [&] { static_cast<void>(set.describe()); },
        [&] { static_cast<void>(set.subset({0}, "y")); },
        [&] { static_cast<void>(set.split(0, "y")); },
        [&] { const ronde::Buffer<float> none(set, 1); },
    };
    for (const auto& call : calls) EXPECT_THAT(thrown_by(call), HasSubstr(expected));
    set.close();
  });
}

TEST(ProcessSetsApi, AreClosedWithTheEngineAndTheirHandlesLater) {
  on_ranks(2, [](ronde::Engine& engine) {
    ronde::Engine set = engine.split(0, "all");
    set.barrier_blocking();
    engine.close();
    EXPECT_THAT(thrown_by([&] { set.barrier_blocking(); }), HasSubstr("closed"));
    set.close();
  });
}

TEST(ProcessSetsApi, NameThePlaceOfACallThatDisagrees) {
  on_ranks(2, [](ronde::Engine& engine) {
    const std::vector<int> ranks =
        engine.rank() == 0 ? std::vector<int>{0, 1} : std::vector<int>{1};
    if (engine.rank() == 1) engine.barrier_blocking();  // rank 0 asks first
    std::string text;
    if (engine.rank() == 0) {
      ronde::Work met = engine.barrier();
      text = thrown_by([&] { static_cast<void>(engine.subset(ranks, "x")); });
      met.wait();
    } else {
      text = thrown_by([&] { static_cast<void>(engine.subset(ranks, "x")); });
    }
    EXPECT_THAT(text, HasSubstr("the ranks disagree"));
    EXPECT_THAT(text, HasSubstr("process_sets_api_test.cc:"));
  });
}

TEST(ProcessSetsApi, RefuseNullArguments) {
  on_ranks(1, [](ronde::Engine& engine) {
    ronde_engine* set = nullptr;
    const int32_t rank = 0;
    EXPECT_EQ(ronde_engine_subset(nullptr, &rank, 1, "x", 0, nullptr, 0, &set, nullptr),
              RONDE_INVALID_ARGUMENT);
    EXPECT_EQ(ronde_engine_subset(engine.get(), nullptr, 1, "x", 0, nullptr, 0, &set, nullptr),
              RONDE_INVALID_ARGUMENT);
    EXPECT_EQ(ronde_engine_subset(engine.get(), &rank, 1, nullptr, 0, nullptr, 0, &set, nullptr),
              RONDE_INVALID_ARGUMENT);
    EXPECT_EQ(ronde_engine_subset(engine.get(), &rank, 1, "x", 0, nullptr, 0, nullptr, nullptr),
              RONDE_INVALID_ARGUMENT);
    EXPECT_EQ(ronde_engine_subset(engine.get(), &rank, 1, "x", -1, nullptr, 0, &set, nullptr),
              RONDE_INVALID_ARGUMENT);
    EXPECT_EQ(ronde_engine_split(engine.get(), 0, nullptr, nullptr, 0, &set, nullptr),
              RONDE_INVALID_ARGUMENT);
    EXPECT_EQ(ronde_rank_of_job(nullptr, 0), -1);
    EXPECT_EQ(set, nullptr);
  });
}

}  // namespace
