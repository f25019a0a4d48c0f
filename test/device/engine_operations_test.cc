// SPDX-License-Identifier: Apache-2.0
// Every operation on tensors of a device, through whole engines: where devices reach each other,
// and through host memory.
#include <gmock/gmock.h>

#include <array>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "test/device/device_engines.h"
#include "test/support/operations.h"

namespace ronde::device_test {
namespace {

using base::ReduceOp;
using runtime::Engine;
using runtime::Operation;
using runtime::Submission;
using testing::submit_and_wait;

// Ranks, and whether the devices reach each other.
class DeviceOperations : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  DeviceOperations() {
    if (!std::get<1>(GetParam())) ::setenv("RONDE_TOY", "staged", 1);
  }
  ~DeviceOperations() override { ::unsetenv("RONDE_TOY"); }

  [[nodiscard]] static int ranks() { return std::get<0>(GetParam()); }
  static void run(const std::function<void(int, Engine&)>& body) {
    testing::run_job(ranks(), options_of_device(), body);
  }
};

// Small integers: their sums are exact in any order.
auto counting(int rank) {
  return [rank](std::int64_t i) { return static_cast<double>(i % 97 + 10 * rank); };
}
auto summed(int ranks) {
  return [ranks](std::int64_t i) {
    double sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += counting(rank)(i);
    return sum;
  };
}

TEST_P(DeviceOperations, AllreduceInPlaceOfAnySize) {
  run([](int rank, Engine& engine) {
    // The staged path cuts the largest into more chunks than it has lanes.
    for (const std::int64_t elements : {0, 1, 17, 1000, 1 << 20}) {
      const DeviceMemory memory(vector_of(elements, counting(rank)));
      const auto status = submit_and_wait(
          engine, device_allreduce("n" + std::to_string(elements), memory, elements));
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(memory.values<float>(), vector_of(elements, summed(ranks())));
    }
  });
}

TEST_P(DeviceOperations, AllreduceOutOfPlaceScalesAndAverages) {
  run([](int rank, Engine& engine) {
    const DeviceMemory input(vector_of(300, [&](auto i) { return i + rank; }));
    const DeviceMemory output(300 * sizeof(float));
    Submission scaled = device_vector("t", Operation::kAllreduce, 300, input.get(), output.get());
    scaled.signature.op = ReduceOp::kAverage;
    scaled.signature.prescale = 2;
    scaled.signature.postscale = 0.5;
    const auto status = submit_and_wait(engine, scaled);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(output.values<float>(),
              vector_of(300, [](auto i) { return static_cast<double>(i) + (ranks() - 1) / 2.0; }));
    EXPECT_EQ(input.values<float>(), vector_of(300, [&](auto i) { return i + rank; }));
  });
}

TEST_P(DeviceOperations, AllreduceTakesTheLargestAndTheSmallest) {
  run([](int rank, Engine& engine) {
    for (const auto& [op, expected] :
         {std::pair(ReduceOp::kMax, ranks() - 1), std::pair(ReduceOp::kMin, 0)}) {
      const DeviceMemory memory(std::vector<float>(50, static_cast<float>(rank)));
      Submission submission = device_allreduce("t", memory, 50);
      submission.signature.op = op;
      ASSERT_TRUE(submit_and_wait(engine, submission).ok());
      EXPECT_EQ(memory.values<float>(), std::vector<float>(50, static_cast<float>(expected)));
    }
  });
}

TEST_P(DeviceOperations, AllreduceIsCompressed) {
  run([](int rank, Engine& engine) {
    // Beyond bf16's digits: what is read is rounded.
    const DeviceMemory memory(std::vector<float>(50, rank == 0 ? 1.001F : 0.0F));
    Submission submission = device_allreduce("t", memory, 50);
    submission.signature.compression = base::Compression::kBf16;
    ASSERT_TRUE(submit_and_wait(engine, submission).ok());
    EXPECT_EQ(memory.values<float>(), std::vector<float>(50, 1.0F));
  });
}

TEST_P(DeviceOperations, GroupsAreOneUnit) {
  run([](int rank, Engine& engine) {
    const std::array<std::int64_t, 4> sizes{3, 0, 400000, 70};
    std::vector<std::unique_ptr<DeviceMemory>> memories;
    std::vector<Submission> tensors;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      memories.push_back(std::make_unique<DeviceMemory>(vector_of(sizes[i], counting(rank))));
      tensors.push_back(device_allreduce("t" + std::to_string(i), *memories[i], sizes[i]));
    }
    auto group = runtime::group_of(std::move(tensors));
    ASSERT_TRUE(group.ok());
    const auto status = submit_and_wait(engine, *std::move(group));
    ASSERT_TRUE(status.ok()) << status.message();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(memories[i]->values<float>(), vector_of(sizes[i], summed(ranks()))) << i;
    }
  });
}

TEST_P(DeviceOperations, ManyTensorsInAnyOrder) {
  run([](int rank, Engine& engine) {
    constexpr int kTensors = 40;
    std::vector<std::unique_ptr<DeviceMemory>> memories(kTensors);
    for (int step = 0; step < 3; ++step) {
      std::vector<Engine::WorkPtr> works;
      for (int k = 0; k < kTensors; ++k) {
        const int i = (k * 7 + rank * 13) % kTensors;
        auto& memory = memories[static_cast<std::size_t>(i)];
        memory = std::make_unique<DeviceMemory>(vector_of(10 * i, counting(rank + step)));
        const auto work = engine.submit(device_allreduce("t" + std::to_string(i), *memory, 10 * i));
        ASSERT_TRUE(work.ok()) << work.status().message();
        works.push_back(*work);
      }
      for (const auto& work : works) ASSERT_TRUE(engine.wait(*work).ok());
      for (int i = 0; i < kTensors; ++i) {
        const auto expected = vector_of(10 * i, [&](std::int64_t e) {
          return summed(ranks() + step)(e) - (step > 0 ? summed(step)(e) : 0);
        });
        EXPECT_EQ(memories[static_cast<std::size_t>(i)]->values<float>(), expected) << i;
      }
    }
  });
}

TEST_P(DeviceOperations, BroadcastInAndOutOfPlace) {
  run([](int rank, Engine& engine) {
    for (const bool in_place : {true, false}) {
      for (int root = 0; root < ranks(); ++root) {
        constexpr std::int64_t kElements = 300001;
        const DeviceMemory input(vector_of(kElements, counting(rank)));
        const DeviceMemory output(kElements * sizeof(float));
        const DeviceMemory& result = in_place ? input : output;
        Submission submission =
            device_vector("b", Operation::kBroadcast, kElements, input.get(), result.get());
        submission.signature.root = root;
        const auto status = submit_and_wait(engine, submission);
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(result.values<float>(), vector_of(kElements, counting(root)));
      }
    }
  });
}

TEST_P(DeviceOperations, AllgatherOfUnevenRows) {
  run([](int rank, Engine& engine) {
    for (const int most : {2, 0}) {
      const auto rows = [&](int r) { return std::int64_t{most} * r; };
      const DeviceMemory mine(vector_of(rows(rank) * 3, counting(rank)));
      Submission submission = device_vector("g", Operation::kAllgather, 0, mine.get(), nullptr);
      submission.signature.shape = {rows(rank), 3};
      const auto work = engine.submit(submission);
      ASSERT_TRUE(work.ok()) << work.status().message();
      ASSERT_TRUE(engine.wait(**work).ok()) << (*work)->status.message();
      std::vector<float> expected;
      for (int r = 0; r < ranks(); ++r) {
        const auto part = vector_of(rows(r) * 3, counting(r));
        expected.insert(expected.end(), part.begin(), part.end());
      }
      EXPECT_EQ(output_of(**work), expected);
      EXPECT_EQ((*work)->output_shape[0], static_cast<std::int64_t>(expected.size()) / 3);
    }
  });
}

TEST_P(DeviceOperations, ReduceScatterEvenAndWithSplits) {
  run([](int rank, Engine& engine) {
    for (const bool even : {true, false}) {
      const std::int64_t rows = 2 * ranks() + 1;
      std::vector<std::int64_t> splits(static_cast<std::size_t>(ranks()), 0);
      splits.back() = rows;
      const DeviceMemory input(vector_of(rows * 2, counting(rank)));
      const std::int64_t mine = even ? rows / ranks() + (rank < rows % ranks() ? 1 : 0)
                                     : (rank + 1 == ranks() ? rows : 0);
      const std::int64_t before =
          even ? rows / ranks() * rank + std::min<std::int64_t>(rank, rows % ranks()) : 0;
      const DeviceMemory output(static_cast<std::size_t>(mine) * 2 * sizeof(float));
      Submission submission =
          device_vector("s", Operation::kReduceScatter, 0, input.get(), output.get());
      submission.signature.shape = {rows, 2};
      if (!even) submission.splits = splits;
      const auto status = submit_and_wait(engine, submission);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(output.values<float>(),
                vector_of(mine * 2, [&](auto i) { return summed(ranks())(i + before * 2); }));
    }
  });
}

TEST_P(DeviceOperations, AllToAllTellsWhatComes) {
  run([](int rank, Engine& engine) {
    // From rank a to rank b: a + 2 b rows of two elements, each a * 100 + b.
    std::vector<std::int64_t> splits;
    std::vector<float> values;
    std::vector<float> expected;
    std::vector<std::int64_t> from;
    for (int other = 0; other < ranks(); ++other) {
      splits.push_back(rank + 2 * other);
      values.insert(values.end(), static_cast<std::size_t>(2 * splits.back()),
                    static_cast<float>(rank * 100 + other));
      from.push_back(other + 2 * rank);
      expected.insert(expected.end(), static_cast<std::size_t>(2 * from.back()),
                      static_cast<float>(other * 100 + rank));
    }
    const DeviceMemory input(values);
    Submission submission = device_vector("a", Operation::kAllToAll, 0, input.get(), nullptr);
    submission.signature.shape = {std::accumulate(splits.begin(), splits.end(), std::int64_t{0}),
                                  2};
    submission.splits = splits;
    const auto work = engine.submit(submission);
    ASSERT_TRUE(work.ok()) << work.status().message();
    ASSERT_TRUE(engine.wait(**work).ok()) << (*work)->status.message();
    EXPECT_EQ(output_of(**work), expected);
    EXPECT_EQ((*work)->received_splits, from);
  });
}

TEST_P(DeviceOperations, ABarrierIsBehindTheStream) {
  run([](int rank, Engine& engine) {
    const ronde_device_kit& kit = *Device::instance().kit;
    const StreamOwner stream;
    const DeviceMemory source(std::vector<float>(4, 1.0F));
    const DeviceMemory target(std::vector<float>(4, 0.0F));
    if (rank == 0) kit.delay(stream.get(), 30);
    kit.copy(stream.get(), target.get(), source.get(), 4 * sizeof(float));
    const auto status = submit_and_wait(engine, device_barrier("barrier", stream.get()));
    ASSERT_TRUE(status.ok()) << status.message();
    std::vector<float> now(4);
    kit.read(now.data(), target.get(), 4 * sizeof(float), nullptr);
    EXPECT_EQ(now, std::vector<float>(4, 1.0F));
  });
}

TEST_P(DeviceOperations, HostAndDeviceTensorsInTurns) {
  run([](int rank, Engine& engine) {
    for (int step = 0; step < 20; ++step) {
      std::vector<float> host = vector_of(1000, counting(rank));
      const DeviceMemory memory(vector_of(1000, counting(rank)));
      const DeviceMemory managed(1000 * sizeof(float), true);
      auto* const shared = static_cast<float*>(managed.get());
      std::copy(host.begin(), host.end(), shared);
      Submission by_host = testing::allreduce_of("host", host);
      Submission of_managed =
          device_vector("managed", Operation::kAllreduce, 1000, nullptr, shared);
      if (step % 2 == 0) of_managed.signature.device = -1;
      const auto a = engine.submit(device_allreduce("device", memory, 1000));
      const auto b = engine.submit(std::move(by_host));
      const auto c = engine.submit(of_managed);
      for (const auto* work : {&a, &b, &c}) {
        ASSERT_TRUE(work->ok()) << work->status().message();
        ASSERT_TRUE(engine.wait(***work).ok());
      }
      const auto expected = vector_of(1000, summed(ranks()));
      EXPECT_EQ(memory.values<float>(), expected);
      EXPECT_EQ(host, expected);
      EXPECT_EQ(std::vector<float>(shared, shared + 1000), expected);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceOperations,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Bool()),
                         [](const auto& parameters) {
                           return std::to_string(std::get<0>(parameters.param)) + "Ranks" +
                                  (std::get<1>(parameters.param) ? "Direct" : "Staged");
                         });

}  // namespace
}  // namespace ronde::device_test
