// SPDX-License-Identifier: Apache-2.0
// Counts above 2^31 elements, in place, with two engines in this process. Takes 5 GB of memory and
// some seconds, so it runs only when it is asked for: RONDE_TEST_HUGE=1.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

// Beyond 2^31, and no multiple of anything.
constexpr std::int64_t kElements = 2'200'000'011;

bool asked_for() {
  // Before any thread starts.
  const char* const value = std::getenv("RONDE_TEST_HUGE");  // NOLINT(concurrency-mt-unsafe)
  return value != nullptr && std::string_view(value) == "1";
}

// Element i is (i % 251 * factor + more) % 256: whole periods of it, to copy and compare with.
std::vector<std::uint8_t> period(unsigned factor, unsigned more) {
  std::vector<std::uint8_t> result(std::size_t{251} * 4096);
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<std::uint8_t>(i % 251 * factor + more);
  }
  return result;
}

class Huge {
 public:
  Huge() : memory_(std::make_unique_for_overwrite<std::uint8_t[]>(kElements)) {}

  void fill(const std::vector<std::uint8_t>& numbers) {
    for_each_part(numbers.size(), [&](std::uint8_t* part, std::size_t size) {
      std::memcpy(part, numbers.data(), size);
    });
  }
  [[nodiscard]] bool holds(const std::vector<std::uint8_t>& numbers) {
    bool equal = true;
    for_each_part(numbers.size(), [&](std::uint8_t* part, std::size_t size) {
      equal = equal && std::memcmp(part, numbers.data(), size) == 0;
    });
    return equal;
  }
  [[nodiscard]] Submission submission(const std::string& name, Operation operation) {
    Submission result;
    result.name = name;
    result.signature.operation = operation;
    result.signature.dtype = base::DType::kU8;
    result.signature.op = base::ReduceOp::kSum;
    result.signature.root = 1;
    result.signature.shape = {kElements};
    result.output = reinterpret_cast<std::byte*>(memory_.get());
    result.input = result.output;
    result.will_wait = true;
    return result;
  }

 private:
  template <class F>
  void for_each_part(std::size_t most, F&& f) {
    for (std::size_t at = 0; at < std::size_t{kElements}; at += most) {
      f(memory_.get() + at, std::min(most, std::size_t{kElements} - at));
    }
  }

  std::unique_ptr<std::uint8_t[]> memory_;
};

TEST(HugeCounts, AboveTwoToThe31) {
  if (!asked_for()) GTEST_SKIP() << "memory: this takes 5 GB; RONDE_TEST_HUGE=1 runs it";
  testing::run_job(2, [](int rank, Engine& engine) {
    Huge data;
    data.fill(period(rank == 0 ? 1 : 2, rank == 0 ? 5 : 0));
    auto work = engine.submit(data.submission("sum", Operation::kAllreduce));
    ASSERT_TRUE(work.ok()) << work.status().message();
    base::Status status = engine.wait(**work);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(data.holds(period(3, 5))) << "allreduce, rank " << rank;

    if (rank == 1) data.fill(period(7, 9));
    work = engine.submit(data.submission("broadcast", Operation::kBroadcast));
    ASSERT_TRUE(work.ok()) << work.status().message();
    status = engine.wait(**work);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(data.holds(period(7, 9))) << "broadcast, rank " << rank;
  });
}

}  // namespace
}  // namespace ronde::runtime
