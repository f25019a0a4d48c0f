// SPDX-License-Identifier: Apache-2.0
// The operations that cut, exchange and group, over engines in one process and by every algorithm,
// against sums done by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "test/support/operations.h"

namespace ronde::runtime {
namespace {

using base::Status;
using ronde::testing::allreduce_of;
using ronde::testing::broadcast_of;
using ronde::testing::bytes_of;
using ronde::testing::EngineOptions;
using ronde::testing::group_of_vectors;
using ronde::testing::run_job;
using ronde::testing::submit_and_wait;
using Rows = std::vector<std::int64_t>;

constexpr std::int64_t kWidth = 3;  // elements of a row

Submission scatter_of(const std::string& name, std::vector<std::int32_t>& input, std::byte* output,
                      const Rows& splits = {}) {
  Submission submission;
  submission.name = name;
  submission.place = "test.cc:3";
  submission.signature.operation = Operation::kReduceScatter;
  submission.signature.dtype = base::DType::kI32;
  submission.signature.op = base::ReduceOp::kSum;
  submission.signature.shape = {static_cast<std::int64_t>(input.size()) / kWidth, kWidth};
  submission.views[0].input = bytes_of(input);
  submission.views[0].output = output;
  submission.splits = splits;
  return submission;
}

Submission exchange_of(const std::string& name, std::vector<std::int32_t>& input,
                       const Rows& splits = {}) {
  Submission submission = scatter_of(name, input, nullptr, splits);
  submission.signature.operation = Operation::kAllToAll;
  return submission;
}

class OperationsTest : public ::testing::TestWithParam<std::tuple<int, const char*>> {
 protected:
  [[nodiscard]] static int ranks() { return std::get<0>(GetParam()); }
  static void run(const std::function<void(int, Engine&)>& body) {
    EngineOptions options;
    options.environment = {std::string("RONDE_ALGORITHM=") + std::get<1>(GetParam())};
    run_job(ranks(), options, body);
  }
};

// ---- reduce-scatter ----

// Element i of rank r, and the sum of all ranks' elements.
std::int32_t value(int rank, std::size_t i) { return static_cast<std::int32_t>(i) * 7 + rank; }
std::int32_t sum_at(int ranks, std::size_t i) {
  return static_cast<std::int32_t>(i) * 7 * ranks + ranks * (ranks - 1) / 2;
}

std::vector<std::int32_t> rows_of_rank(int rank, std::int64_t rows) {
  std::vector<std::int32_t> data(static_cast<std::size_t>(rows * kWidth));
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = value(rank, i);
  return data;
}

void expect_share(const Signature& signature, int rank, int ranks, const std::int32_t* share) {
  const auto first = static_cast<std::size_t>(rows_before_rank(signature, rank, ranks) * kWidth);
  const auto count = static_cast<std::size_t>(rows_of_rank(signature, rank, ranks) * kWidth);
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(share[i], sum_at(ranks, first + i)) << i;
}

std::vector<Rows> some_splits(int ranks) {
  base::check(ranks > 0, "a job has at least one rank");
  Rows rising(static_cast<std::size_t>(ranks));
  std::iota(rising.begin(), rising.end(), 0);
  Rows all_to_last(static_cast<std::size_t>(ranks), 0);
  all_to_last[all_to_last.size() - 1] = 1000;
  Rows large(static_cast<std::size_t>(ranks), 0);
  large[0] = 40'000;
  large[large.size() - 1] += 17;
  return {rising, all_to_last, large};
}

TEST_P(OperationsTest, ReduceScatterLeavesEachRankItsRows) {
  run([&](int rank, Engine& engine) {
    const auto check = [&](std::int64_t rows, const Rows& splits) {
      std::vector<std::int32_t> input = rows_of_rank(rank, rows);
      const std::vector<std::int32_t> before = input;
      Submission submission = scatter_of("rs", input, nullptr, splits);
      Signature signature = submission.signature;
      signature.splits = splits;
      const std::int64_t mine = rows_of_rank(signature, rank, ranks()) * kWidth;
      std::vector<std::int32_t> output(static_cast<std::size_t>(mine) + 1, -1);
      submission.views[0].output = bytes_of(output);
      const Status done = submit_and_wait(engine, submission);
      ASSERT_TRUE(done.ok()) << done.message();
      expect_share(signature, rank, ranks(), output.data());
      EXPECT_EQ(output.back(), -1) << "wrote beyond its rows";
      EXPECT_EQ(input, before) << "out of place the input stays";
    };
    for (const std::int64_t rows : {0, 1, 2, 5, 64, 1000, 70'001}) check(rows, {});
    for (const Rows& splits : some_splits(ranks())) {
      check(std::accumulate(splits.begin(), splits.end(), std::int64_t{0}), splits);
    }
  });
}

TEST_P(OperationsTest, ReduceScatterInPlaceWritesItsRowsWhereTheyAre) {
  run([&](int rank, Engine& engine) {
    for (const std::int64_t rows : {1, 7, 5000}) {
      std::vector<std::int32_t> data = rows_of_rank(rank, rows);
      Submission submission = scatter_of("rs", data, nullptr);
      const Signature signature = submission.signature;
      const std::int64_t first = rows_before_rank(signature, rank, ranks()) * kWidth;
      submission.views[0].output = bytes_of(data) + first * 4;
      const Status done = submit_and_wait(engine, submission);
      ASSERT_TRUE(done.ok()) << done.message();
      expect_share(signature, rank, ranks(), data.data() + first);
    }
  });
}

TEST_P(OperationsTest, ReduceScatterOfFloatsScalesAndAverages) {
  run([&](int rank, Engine& engine) {
    std::vector<float> input(static_cast<std::size_t>(ranks() * 100));
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(rank + 1);
    std::vector<float> output(100);
    for (const bool compressed : {false, true}) {
      Submission submission = allreduce_of("rs", input, base::ReduceOp::kAverage);
      submission.signature.operation = Operation::kReduceScatter;
      submission.signature.prescale = 2.0;
      submission.signature.postscale = 0.5;
      if (compressed) submission.signature.compression = base::Compression::kBf16;
      submission.views[0].output = bytes_of(output);
      const Status done = submit_and_wait(engine, submission);
      ASSERT_TRUE(done.ok()) << done.message();
      const float mean = static_cast<float>(ranks() + 1) / 2.0F;
      for (const float value_here : output) ASSERT_NEAR(value_here, mean, compressed ? 0.05 : 1e-5);
    }
  });
}

// ---- all-to-all ----

// Rank `from` sends this to rank `to` in round `round`: a row of its own kind.
std::int32_t parcel(int from, int to, int round) { return from * 10'000 + to * 100 + round; }

std::int64_t rows_sent(int from, int to, int round) { return (from * 5 + to * 3 + round * 7) % 11; }

TEST_P(OperationsTest, AllToAllDeliversWhatWasSentToEachRank) {
  run([&](int rank, Engine& engine) {
    for (int round = 0; round < 6; ++round) {
      // Large rounds take more than one segment.
      const std::int64_t scale = round == 4 ? 3000 : 1;
      std::vector<std::int32_t> input;
      Rows splits;
      Rows received;
      std::vector<std::int32_t> expected;
      for (int peer = 0; peer < ranks(); ++peer) {
        splits.push_back(rows_sent(rank, peer, round) * scale);
        received.push_back(rows_sent(peer, rank, round) * scale);
        input.insert(input.end(), static_cast<std::size_t>(splits.back() * kWidth),
                     parcel(rank, peer, round));
        expected.insert(expected.end(), static_cast<std::size_t>(received.back() * kWidth),
                        parcel(peer, rank, round));
      }
      const auto work = engine.submit(exchange_of("x", input, splits));
      ASSERT_TRUE(work.ok()) << work.status().message();
      const Status done = engine.wait(**work);
      ASSERT_TRUE(done.ok()) << done.message();
      const auto rows = static_cast<std::int64_t>(expected.size()) / kWidth;
      EXPECT_EQ((*work)->output_shape, (base::Shape{rows, kWidth}));
      EXPECT_EQ((*work)->output_dtype, base::DType::kI32);
      EXPECT_EQ((*work)->received_splits, received);
      ASSERT_EQ((*work)->output.size(), expected.size() * 4);
      EXPECT_TRUE(expected.empty() ||
                  std::memcmp((*work)->output.data(), expected.data(), expected.size() * 4) == 0)
          << "round " << round;
    }
  });
}

TEST_P(OperationsTest, AllToAllWithoutSplitsIsATranspose) {
  run([&](int rank, Engine& engine) {
    std::vector<std::int32_t> input;
    std::vector<std::int32_t> expected;
    for (int peer = 0; peer < ranks(); ++peer) {
      input.insert(input.end(), 2 * kWidth, parcel(rank, peer, 0));
      expected.insert(expected.end(), 2 * kWidth, parcel(peer, rank, 0));
    }
    const auto work = engine.submit(exchange_of("x", input));
    ASSERT_TRUE(work.ok()) << work.status().message();
    ASSERT_TRUE(engine.wait(**work).ok());
    EXPECT_EQ((*work)->received_splits, Rows(static_cast<std::size_t>(ranks()), 2));
    ASSERT_EQ((*work)->output.size(), expected.size() * 4);
    EXPECT_EQ(std::memcmp((*work)->output.data(), expected.data(), expected.size() * 4), 0);
  });
}

// Changed splits travel with the data, so the step still sends only an arrival and no full request.
TEST_P(OperationsTest, AllToAllWithOtherRowsIsStillPlanned) {
  run([&](int rank, Engine& engine) {
    std::uint64_t full = 0;
    for (int round = 0; round < 5; ++round) {
      Rows splits(static_cast<std::size_t>(ranks()), round + rank);
      std::vector<std::int32_t> input(static_cast<std::size_t>((round + rank) * ranks() * kWidth),
                                      rank);
      ASSERT_TRUE(submit_and_wait(engine, exchange_of("x", input, splits)).ok());
      if (round == 0) full = engine.statistics().full_requests;
    }
    EXPECT_EQ(engine.statistics().full_requests, full);
  });
}

// ---- groups ----

TEST_P(OperationsTest, AGroupIsReducedInOneBatch) {
  run([&](int rank, Engine& engine) {
    for (int step = 0; step < 3; ++step) {
      const std::uint64_t before = engine.statistics().batches;
      std::vector<std::vector<float>> data;
      for (const std::size_t length : {5U, 0U, 1U, 70'000U, 33U}) {
        data.emplace_back(length, static_cast<float>(rank + step));
      }
      const Status done = submit_and_wait(engine, group_of_vectors(data, base::ReduceOp::kSum));
      ASSERT_TRUE(done.ok()) << done.message();
      const auto sum = static_cast<float>(sum_at(ranks(), 0) + ranks() * step);
      for (const auto& tensor : data) {
        EXPECT_EQ(tensor, std::vector<float>(tensor.size(), sum));
      }
      EXPECT_EQ(engine.statistics().batches, before + 1);
    }
    EXPECT_EQ(engine.statistics().full_requests, 1U);
    EXPECT_EQ(engine.statistics().tensors, 3U * 5U);
  });
}

TEST_P(OperationsTest, AGroupHasTheBitsOfItsTensorsAlone) {
  run([&](int rank, Engine& engine) {
    const auto fill = [&] {
      std::vector<std::vector<float>> data;
      for (const std::size_t length : {17U, 1000U, 3U}) {
        data.emplace_back(length);
        for (std::size_t i = 0; i < length; ++i) {
          data.back()[i] = 1.0F / static_cast<float>(i * 3 + static_cast<std::size_t>(rank) + 1);
        }
      }
      return data;
    };
    std::vector<std::vector<float>> together = fill();
    std::vector<std::vector<float>> alone = fill();
    ASSERT_TRUE(submit_and_wait(engine, group_of_vectors(together, base::ReduceOp::kAverage)).ok());
    for (std::vector<float>& tensor : alone) {
      ASSERT_TRUE(
          submit_and_wait(engine, allreduce_of("alone", tensor, base::ReduceOp::kAverage)).ok());
    }
    EXPECT_EQ(together, alone);
  });
}

TEST_P(OperationsTest, AGroupIsBroadcast) {
  run([&](int rank, Engine& engine) {
    const int root = ranks() - 1;
    std::vector<std::vector<float>> data(3, std::vector<float>(100, static_cast<float>(rank)));
    std::vector<Submission> tensors;
    for (std::size_t i = 0; i < data.size(); ++i) {
      tensors.push_back(broadcast_of("w" + std::to_string(i), data[i], root));
    }
    const Status done = submit_and_wait(engine, *group_of(std::move(tensors)));
    ASSERT_TRUE(done.ok()) << done.message();
    for (const auto& tensor : data) {
      EXPECT_EQ(tensor, std::vector<float>(100, static_cast<float>(root)));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, OperationsTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 8),
                                            ::testing::Values("auto", "ring", "direct", "gather")),
                         [](const auto& one) {
                           return std::string(std::get<1>(one.param)) + "At" +
                                  std::to_string(std::get<0>(one.param));
                         });

}  // namespace
}  // namespace ronde::runtime
