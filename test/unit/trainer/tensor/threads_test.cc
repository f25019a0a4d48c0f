// SPDX-License-Identifier: Apache-2.0
// How many threads compute is the tape's affair, whatever other tapes there are and whichever
// thread uses it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/tape.h"
#include "test/unit/trainer/tensor/gradients.h"

extern "C" void omp_set_num_threads(int threads);
extern "C" int omp_get_max_threads();

namespace ronde::trainer {
namespace {

// Threads of this process: OpenMP starts those that a calling thread lacks, and keeps them.
std::ptrdiff_t threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// Threads that computing on the tape, on a thread that has none yet, has started.
std::ptrdiff_t started_by(Tape& tape) {
  std::ptrdiff_t started = 0;
  std::thread([&] {
    omp_set_num_threads(3);  // a setting of the program's
    constexpr std::size_t kSide = 512;
    const std::vector<float> values(kSide * kSide, 1.0F);
    const std::ptrdiff_t before = threads();
    tape.begin({.training = false});
    const Tensor a = tape.borrow({kSide, kSide}, values);
    (void)matmul(a, a);
    const std::vector<float> zeros(9 * 64 * 64);
    const Tensor images = tape.borrow({4, 64, 32, 32}, std::span(values).first(4UL * 64 * 32 * 32));
    (void)convolution(images, tape.borrow({64, 64, 3, 3}, zeros),
                      tape.borrow({64}, std::span(zeros).first(64)), {{3, 3}, {1, 1}, {1, 1}});
    started = threads() - before;
    EXPECT_EQ(omp_get_max_threads(), 3);
  }).join();
  return started;
}

TEST(Threads, BelongToATape) {
  Tape four(4);
  Tape two(2);
  Tape one(1);
  EXPECT_EQ(started_by(two), 1);
  EXPECT_EQ(started_by(one), 0);
  EXPECT_EQ(started_by(four), 3);
}

TEST(Threads, AreAtLeastOne) {
  EXPECT_THAT(refusal([] { const Tape none(0); }), testing::HasSubstr("0 threads: use at least 1"));
}

}  // namespace
}  // namespace ronde::trainer
