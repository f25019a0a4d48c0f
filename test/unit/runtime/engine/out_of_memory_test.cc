// SPDX-License-Identifier: Apache-2.0
// Out of memory in the call that submits: wherever it happens, nothing is in flight
// afterwards, and the name is free again. The allocator of this program fails when it is told to.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "test/support/engines.h"
#include "test/support/operations.h"

namespace {

// How many allocations of this thread from now on succeed; negative: all of them.
thread_local int allocations_left = -1;

void* allocate(std::size_t size) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t /*size*/) noexcept { std::free(memory); }

namespace ronde::runtime {
namespace {

using testing::allreduce_of;

// Longer than what a string holds without an allocation.
std::string long_name(const std::string& end) {
  return "a name that needs memory of its own: " + end;
}

using Make = std::function<Submission(std::vector<float>& data)>;

// Submits with the n-th allocation failing; true when there was one.
bool fails_at(int n, Engine& engine, std::vector<float>& data, const Make& make,
              Engine::WorkPtr& work) {
  Submission submission = make(data);
  allocations_left = n;
  try {
    const auto submitted = engine.submit(std::move(submission));
    allocations_left = -1;
    EXPECT_TRUE(submitted.ok()) << submitted.status().message();
    if (submitted.ok()) work = *submitted;
    return false;
  } catch (const std::bad_alloc&) {
    allocations_left = -1;
    return true;
  }
}

// For each n: the call fails at the n-th allocation; then the same tensor is submitted again.
void try_each_allocation(const std::vector<testing::EnginePtr>& engines,
                         const std::function<Make(int n)>& make_for) {
  bool failed = true;
  int failures = 0;
  for (int n = 0; failed; ++n) {
    ASSERT_LT(n, 200);
    const Make make = make_for(n);
    std::vector<float> mine(4, 1.0F);
    std::vector<float> others(4, 2.0F);
    Engine::WorkPtr work;
    failed = fails_at(n, *engines[0], mine, make, work);
    if (failed) {
      ++failures;
      ASSERT_FALSE(fails_at(-1, *engines[0], mine, make, work)) << n;
    }
    ASSERT_NE(work, nullptr) << "after allocation " << n;
    const auto other = engines[1]->submit(make(others));
    ASSERT_TRUE(other.ok()) << other.status().message();
    ASSERT_TRUE(engines[0]->wait(*work).ok()) << "after allocation " << n;
    ASSERT_TRUE(engines[1]->wait(**other).ok());
    EXPECT_EQ(mine, std::vector<float>(4, 3.0F));
  }
  EXPECT_GT(failures, 3);
}

class OutOfMemoryTest : public ::testing::Test {
 protected:
  ~OutOfMemoryTest() override {
    testing::on_ranks(2, [&](int rank) {
      const base::Status closed = engines_[static_cast<std::size_t>(rank)]->close();
      EXPECT_TRUE(closed.ok()) << closed.message();
    });
  }
  std::vector<testing::EnginePtr> engines_ = testing::open_engines(2);
};

TEST_F(OutOfMemoryTest, R14OfANewTensorNothingIsInFlight) {
  try_each_allocation(engines_, [](int n) -> Make {
    return
        [n](std::vector<float>& data) { return allreduce_of(long_name(std::to_string(n)), data); };
  });
}

TEST_F(OutOfMemoryTest, R14OfAPlannedTensorNothingIsInFlight) {
  std::vector<float> a(4);
  std::vector<float> b(4);
  for (int step = 0; step < 3; ++step) {
    const auto first = engines_[0]->submit(allreduce_of(long_name("planned"), a));
    const auto second = engines_[1]->submit(allreduce_of(long_name("planned"), b));
    ASSERT_TRUE(first.ok());
    ASSERT_TRUE(second.ok());
    ASSERT_TRUE(engines_[0]->wait(**first).ok());
    ASSERT_TRUE(engines_[1]->wait(**second).ok());
  }
  // Often enough for the queues of the table to grow.
  for (int round = 0; round < 30; ++round) {
    try_each_allocation(engines_, [](int /*n*/) -> Make {
      return [](std::vector<float>& data) { return allreduce_of(long_name("planned"), data); };
    });
  }
}

TEST_F(OutOfMemoryTest, R14OfAGroupNothingIsInFlight) {
  std::vector<float> second_of[2] = {std::vector<float>(3), std::vector<float>(3)};
  try_each_allocation(engines_, [&](int n) -> Make {
    return [&, n](std::vector<float>& data) {
      std::vector<float>& other = second_of[data.front() == 2.0F ? 1 : 0];
      return *group_of({allreduce_of(long_name(std::to_string(n)), data),
                        allreduce_of(long_name("second of " + std::to_string(n)), other)});
    };
  });
}

}  // namespace
}  // namespace ronde::runtime
