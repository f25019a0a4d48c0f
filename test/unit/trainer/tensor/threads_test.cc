// SPDX-License-Identifier: Apache-2.0
// How many threads compute is the tape's affair, whatever other tapes there are and whichever
// thread uses it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <future>
#include <iterator>
#include <thread>
#include <vector>

#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/tape.h"
#include "test/unit/trainer/tensor/numbers.h"

extern "C" void omp_set_num_threads(int threads);
extern "C" int omp_get_max_threads();

namespace ronde::trainer {
namespace {

// Threads of this process: OpenMP starts those that a calling thread lacks, and keeps them.
std::ptrdiff_t threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// Computes on threads of its own, which have no others yet and stay until the end: OpenMP ends
// those that it has started for a thread after it, at some time.
class Workers {
 public:
  Workers() = default;
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers() {
    done_.set_value();
    for (std::thread& thread : threads_) thread.join();
  }

  // How many threads computing on this tape has started.
  std::ptrdiff_t started_by(Tape& tape) {
    std::promise<std::ptrdiff_t> started;
    threads_.emplace_back([&tape, &started, done = may_end_] {
      omp_set_num_threads(3);  // a setting of the program's
      const std::ptrdiff_t before = threads();
      compute(tape);
      EXPECT_EQ(omp_get_max_threads(), 3);
      started.set_value(threads() - before);
      done.wait();
    });
    return started.get_future().get();
  }

 private:
  static void compute(Tape& tape) {
    constexpr std::size_t kSide = 512;
    const std::vector<float> values(kSide * kSide, 1.0F);
    tape.begin({.training = false});
    const Tensor a = tape.borrow({kSide, kSide}, values);
    (void)matmul(a, a);
    const std::vector<float> zeros(9 * kSide * 8);
    const Tensor images = tape.borrow({4, 64, 32, 32}, std::span(values).first(kSide * kSide));
    (void)convolution(images, tape.borrow({64, 64, 3, 3}, zeros),
                      tape.borrow({64}, std::span(zeros).first(64)), {{3, 3}, {1, 1}, {1, 1}});
  }

  std::promise<void> done_;
  std::shared_future<void> may_end_{done_.get_future()};
  std::vector<std::thread> threads_;
};

TEST(Threads, BelongToATape) {
  Tape four(4);
  Tape two(2);
  Tape one(1);
  Workers workers;
  EXPECT_EQ(workers.started_by(two), 1);
  EXPECT_EQ(workers.started_by(one), 0);
  EXPECT_EQ(workers.started_by(four), 3);
}

TEST(Threads, AreAtLeastOne) {
  EXPECT_THAT(refusal([] { const Tape none(0); }), testing::HasSubstr("0 threads: use at least 1"));
}

}  // namespace
}  // namespace ronde::trainer
