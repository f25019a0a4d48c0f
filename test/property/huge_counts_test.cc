// SPDX-License-Identifier: Apache-2.0
// Counts above 2^31 elements, with two engines in this process. The tests take 14 GB of memory (the
// allgather; the others up to 9) and some seconds, so they run only with RONDE_TEST_HUGE=1.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

// The number is beyond 2^31, and odd enough to be no multiple of a size that the code uses.
constexpr std::int64_t kElements = 2'200'000'011;

bool asked_for() {
  // The variable is read before any thread starts.
  const char* const value = std::getenv("RONDE_TEST_HUGE");  // NOLINT(concurrency-mt-unsafe)
  return value != nullptr && std::string_view(value) == "1";
}

// Returns whole periods of the elements (i % 251 * factor + more) % 256, to copy and compare with.
std::vector<std::uint8_t> period(unsigned factor, unsigned more) {
  std::vector<std::uint8_t> result(std::size_t{251} * 4096);
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<std::uint8_t>(i % 251 * factor + more);
  }
  return result;
}

// A large piece of memory, filled with copies of a period.
class Huge {
 public:
  explicit Huge(std::int64_t elements)
      : elements_(elements),
        memory_(std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(elements))) {}

  [[nodiscard]] std::byte* at(std::int64_t element) { return memory_.get() + element; }

  void fill(std::int64_t first, std::int64_t elements, const std::vector<std::uint8_t>& numbers) {
    const auto most = static_cast<std::int64_t>(numbers.size());
    for (std::int64_t done = 0; done < elements; done += most) {
      std::memcpy(at(first + done), numbers.data(),
                  static_cast<std::size_t>(std::min(most, elements - done)));
    }
  }

  // Returns a submission that reads all of it, and writes no memory of the caller.
  [[nodiscard]] Submission submission(const std::string& name, Operation operation) {
    Submission result;
    result.name = name;
    result.signature.operation = operation;
    result.signature.dtype = base::DType::kU8;
    result.signature.op = base::ReduceOp::kSum;
    result.signature.root = 1;
    result.signature.shape = {elements_};
    result.views[0].input = memory_.get();
    result.will_wait = true;
    return result;
  }
  [[nodiscard]] Submission in_place(const std::string& name, Operation operation) {
    Submission result = submission(name, operation);
    result.views[0].output = memory_.get();
    return result;
  }

 private:
  const std::int64_t elements_;
  std::unique_ptr<std::byte[]> memory_;
};

bool holds(const std::byte* memory, std::int64_t elements,
           const std::vector<std::uint8_t>& numbers) {
  const auto most = static_cast<std::int64_t>(numbers.size());
  for (std::int64_t done = 0; done < elements; done += most) {
    const auto size = static_cast<std::size_t>(std::min(most, elements - done));
    if (std::memcmp(memory + done, numbers.data(), size) != 0) return false;
  }
  return true;
}

std::shared_ptr<Work> finish(Engine& engine, Submission submission) {
  auto work = engine.submit(std::move(submission));
  if (!work.ok()) {
    ADD_FAILURE() << work.status().message();
    return nullptr;
  }
  const base::Status status = engine.wait(**work);
  EXPECT_TRUE(status.ok()) << status.message();
  return status.ok() ? *work : nullptr;
}

// The tests run one after the other, and each frees its memory.
class HugeCounts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!asked_for()) GTEST_SKIP() << "memory: this takes 14 GB; RONDE_TEST_HUGE=1 runs it";
  }
};

TEST_F(HugeCounts, AllreduceAndBroadcast) {
  testing::run_job(2, [](int rank, Engine& engine) {
    Huge data(kElements);
    data.fill(0, kElements, period(rank == 0 ? 1 : 2, rank == 0 ? 5 : 0));
    ASSERT_TRUE(finish(engine, data.in_place("sum", Operation::kAllreduce)));
    EXPECT_TRUE(holds(data.at(0), kElements, period(3, 5))) << "allreduce, rank " << rank;

    if (rank == 1) data.fill(0, kElements, period(7, 9));
    ASSERT_TRUE(finish(engine, data.in_place("broadcast", Operation::kBroadcast)));
    EXPECT_TRUE(holds(data.at(0), kElements, period(7, 9))) << "broadcast, rank " << rank;
  });
}

// The result has more than 2^32 elements.
TEST_F(HugeCounts, Allgather) {
  testing::run_job(2, [](int rank, Engine& engine) {
    Huge data(kElements);
    data.fill(0, kElements, period(rank == 0 ? 1 : 2, 3));
    const auto work = finish(engine, data.submission("gather", Operation::kAllgather));
    ASSERT_TRUE(work);
    ASSERT_EQ(std::ssize(work->output), 2 * kElements);
    EXPECT_TRUE(holds(work->output.data(), kElements, period(1, 3))) << "rank " << rank;
    EXPECT_TRUE(holds(work->output.data() + kElements, kElements, period(2, 3))) << "rank " << rank;
  });
}

// The input has more than 2^32 elements. The test checks each rank's share in its place.
TEST_F(HugeCounts, ReduceScatter) {
  testing::run_job(2, [](int rank, Engine& engine) {
    Huge data(2 * kElements);
    for (const unsigned block : {0U, 1U}) {
      data.fill(block * kElements, kElements, period(rank == 0 ? 1 : 2, rank == 0 ? 5 : block));
    }
    Submission submission = data.submission("scatter", Operation::kReduceScatter);
    submission.views[0].output = data.at(rank * kElements);
    ASSERT_TRUE(finish(engine, std::move(submission)));
    EXPECT_TRUE(holds(data.at(rank * kElements), kElements, period(3, rank == 0 ? 5 : 6)))
        << "rank " << rank;
  });
}

// Almost all rows go to the other rank; those that rank 1 keeps come after them.
TEST_F(HugeCounts, AllToAll) {
  constexpr std::int64_t kKept = 17;
  testing::run_job(2, [](int rank, Engine& engine) {
    Huge data(kElements + kKept);
    const bool first = rank == 0;
    data.fill(first ? kKept : 0, kElements, period(first ? 1 : 2, 3));
    data.fill(first ? 0 : kElements, kKept, period(first ? 4 : 6, 0));
    Submission submission = data.submission("exchange", Operation::kAllToAll);
    submission.splits = first ? std::vector{kKept, kElements} : std::vector{kElements, kKept};
    const auto work = finish(engine, std::move(submission));
    ASSERT_TRUE(work);
    EXPECT_EQ(work->received_splits,
              first ? (std::vector{kKept, kElements}) : (std::vector{kElements, kKept}));
    ASSERT_EQ(std::ssize(work->output), kElements + kKept);
    const std::byte* const begin = work->output.data();
    EXPECT_TRUE(holds(begin + (first ? kKept : 0), kElements, period(first ? 2 : 1, 3)));
    EXPECT_TRUE(holds(begin + (first ? 0 : kElements), kKept, period(first ? 4 : 6, 0)));
  });
}

}  // namespace
}  // namespace ronde::runtime
