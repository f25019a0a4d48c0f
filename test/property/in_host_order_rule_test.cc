// SPDX-License-Identifier: Apache-2.0
// The order rule through the whole runtime: tensors are submitted one by one from several threads
// in random orders, fused as it happens, cut into pieces of random sizes and stored either way, by
// threads that flush subnormals to zero or round upwards. The bits must be those of a serial sum
// for the job's shape: one host, or, where the ring is forced, as many hosts as ranks.
#include <gtest/gtest.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cfenv>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "test/property/random_magnitudes.h"
#include "test/support/engines.h"
#include "test/unit/collectives/in_host/scenario.h"

namespace ronde::runtime {
namespace {

namespace oracle = collectives::oracle;
using base::DType;
using base::ReduceOp;
using collectives::Memories;
using collectives::Memory;
using collectives::Reduction;
using Random = std::mt19937_64;

constexpr int kThreads = 3;  // submitting threads on each rank

// Sets a floating-point mode that a trainer may have set. Thread safety: affects its thread alone.
class UsersMode {
 public:
  explicit UsersMode(std::uint64_t which) {
    if (which % 3 == 1) std::fesetround(FE_UPWARD);
    if (which % 3 == 2) flush_to_zero();
  }
  UsersMode(const UsersMode&) = delete;
  UsersMode& operator=(const UsersMode&) = delete;
  ~UsersMode() { std::fesetenv(FE_DFL_ENV); }

 private:
#if defined(__SSE2__)
  static void flush_to_zero() { _mm_setcsr(_mm_getcsr() | 0x8040U); }  // denormals are zero, too
#else
  static void flush_to_zero() { std::fesetround(FE_TOWARDZERO); }
#endif
};

// A tensor of all ranks, and its allreduce.
struct CheckedTensor {
  std::string name;
  Reduction what;
  Memories inputs;  // by rank
  Memory expected;
};

Reduction random_float_reduction(Random& random) {
  constexpr std::array<DType, 4> kTypes{DType::kF32, DType::kF64, DType::kF16, DType::kBf16};
  constexpr std::array<ReduceOp, 5> kOps{ReduceOp::kAverage, ReduceOp::kSum, ReduceOp::kProduct,
                                         ReduceOp::kMin, ReduceOp::kMax};
  Reduction what{.dtype = kTypes[random() % 4]};
  what.op = random() % 2 == 0 ? ReduceOp::kAverage : kOps[random() % 5];
  if (random() % 3 == 0) what.prescale = 0.3;
  if (random() % 3 == 0) what.postscale = 1.7;
  if (what.dtype == DType::kF32 && random() % 2 == 0) {
    what.compression = random() % 2 == 0 ? base::Compression::kBf16 : base::Compression::kF16;
  }
  return what;
}

// Returns tensors of a few kinds, so that many of them fit one batch.
std::vector<CheckedTensor> random_tensors(int ranks, bool ring, Random& random) {
  std::vector<CheckedTensor> tensors;
  for (int kind = 0; kind < 4; ++kind) {
    const Reduction what = random_float_reduction(random);
    for (int i = 0; i < 6; ++i) {
      CheckedTensor tensor{"k" + std::to_string(kind) + "/" + std::to_string(i), what, {}, {}};
      const auto elements = static_cast<std::int64_t>(random() % (i == 0   ? 9000
                                                                  : i == 1 ? 8
                                                                           : 1200));
      for (int rank = 0; rank < ranks; ++rank) {
        tensor.inputs.push_back(oracle::random_magnitudes(what.dtype, elements, random));
      }
      tensor.expected = ring ? oracle::ring_tensor(what, tensor.inputs)
                             : collectives::host_sum(what, tensor.inputs);
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

// Returns settings that must not change a bit.
std::vector<std::string> random_settings(bool ring, Random& random) {
  constexpr std::array<const char*, 4> kPieces{"64", "192", "4096", "65536"};
  constexpr std::array<const char*, 3> kBatches{"1", "20000", "67108864"};
  constexpr std::array<const char*, 4> kSegments{"64", "256", "4096", "131072"};
  constexpr std::array<const char*, 3> kAlgorithms{"ring", "direct", "gather"};
  return {std::string("RONDE_ALGORITHM=") + (ring ? kAlgorithms[random() % 3] : "auto"),
          std::string("RONDE_PIECE_BYTES=") + kPieces[random() % 4],
          std::string("RONDE_STORES=") + (random() % 2 == 0 ? "temporal" : "streaming"),
          std::string("RONDE_BATCH_BYTES=") + kBatches[random() % 3],
          std::string("RONDE_SEGMENT_BYTES=") + kSegments[random() % 4],
          std::string("RONDE_LINGER_SECONDS=") + (random() % 2 == 0 ? "0" : "0.002"),
          std::string("RONDE_SPIN_SECONDS=") + (random() % 2 == 0 ? "0" : "0.00005")};
}

// One of the threads of a rank: submits its tensors, waits for them and compares.
class Submitter {
 public:
  Submitter(Engine& engine, const std::vector<CheckedTensor>& tensors, int rank, std::uint64_t seed)
      : engine_(engine), tensors_(tensors), rank_(rank), random_(seed) {}

  void step(std::vector<std::size_t> mine) {
    std::shuffle(mine.begin(), mine.end(), random_);
    std::vector<Memory> inputs(mine.size());
    std::vector<Memory> outputs(mine.size());
    std::vector<Engine::WorkPtr> works;
    const UsersMode mode(random_());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const CheckedTensor& tensor = tensors_[mine[i]];
      inputs[i] = tensor.inputs[static_cast<std::size_t>(rank_)];
      outputs[i] = inputs[i];
      const bool in_place = random_() % 2 == 0;
      auto work = engine_.submit(submission(tensor, in_place ? outputs[i] : inputs[i], outputs[i]));
      ASSERT_TRUE(work.ok()) << work.status().message();
      works.push_back(*work);
      if (random_() % 4 == 0) std::this_thread::yield();
    }
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const base::Status status = engine_.wait(*works[i]);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    expect(mine, inputs, outputs);
  }

 private:
  [[nodiscard]] Submission submission(const CheckedTensor& tensor, const Memory& input,
                                      Memory& output) {
    Submission result;
    result.name = tensor.name;
    result.signature.dtype = tensor.what.dtype;
    result.signature.op = tensor.what.op;
    result.signature.prescale = tensor.what.prescale;
    result.signature.postscale = tensor.what.postscale;
    result.signature.compression = tensor.what.compression;
    result.signature.shape = {std::ssize(output) / base::size_of(tensor.what.dtype)};
    result.views[0].input = input.data();
    result.views[0].output = output.data();
    result.will_wait = random_() % 4 == 0;
    return result;
  }
  void expect(const std::vector<std::size_t>& mine, const std::vector<Memory>& inputs,
              const std::vector<Memory>& outputs) {
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const CheckedTensor& tensor = tensors_[mine[i]];
      EXPECT_EQ(oracle::first_difference(tensor.what.dtype, outputs[i], tensor.expected), -1)
          << tensor.name << " on rank " << rank_ << ", " << base::name_of(tensor.what.dtype) << " "
          << base::name_of(tensor.what.op) << ", " << outputs[i].size() << " bytes, "
          << base::name_of(tensor.what.compression);
      EXPECT_EQ(inputs[i], tensor.inputs[static_cast<std::size_t>(rank_)]) << "an input changed";
    }
  }

  Engine& engine_;
  const std::vector<CheckedTensor>& tensors_;
  const int rank_;
  Random random_;
};

// The threads that submit a tensor differ from rank to rank.
void run_rank(Engine& engine, const std::vector<CheckedTensor>& tensors, int rank,
              std::uint64_t seed) {
  std::array<std::vector<std::size_t>, kThreads> shares;
  Random random(seed);
  for (std::size_t i = 0; i < tensors.size(); ++i) shares[random() % kThreads].push_back(i);
  testing::on_ranks(kThreads, [&](int thread) {
    const auto index = static_cast<std::size_t>(thread);
    Submitter submitter(engine, tensors, rank, seed * 10 + index);
    for (int step = 0; step < 3; ++step) submitter.step(shares[index]);
  });
}

struct InHostCase {
  int ranks;
  bool ring;
};

class InHostOrderRuleTest : public ::testing::TestWithParam<InHostCase> {};

TEST_P(InHostOrderRuleTest, BitsAreThoseOfTheJobsShape) {
  const auto [ranks, ring] = GetParam();
  const int rounds = ranks < 8 ? 5 : 3;
  for (int round = 0; round < rounds; ++round) {
    const int number = ranks * 1000 + (ring ? 500 : 0) + round;
    const auto seed = static_cast<std::uint64_t>(number);
    Random random(seed);
    const std::vector<CheckedTensor> tensors = random_tensors(ranks, ring, random);
    testing::EngineOptions options;
    options.environment = random_settings(ring, random);
    testing::run_job(ranks, options, [&](int rank, Engine& engine) {
      run_rank(engine, tensors, rank, seed * 100 + static_cast<std::uint64_t>(rank));
    });
    std::string settings;
    for (const std::string& setting : options.environment) settings += setting + " ";
    ASSERT_FALSE(HasFailure()) << "seed " << seed << ": " << settings;
  }
}

// This guards the test above: with these numbers the order, and so the shape, shows in the bits.
TEST_P(InHostOrderRuleTest, AnotherShapeWouldShow) {
  const auto [ranks, ring] = GetParam();
  Random random(3);
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBf16}) {
    const Reduction what{.dtype = dtype, .op = ReduceOp::kAverage};
    Memories inputs;
    for (int rank = 0; rank < ranks; ++rank) {
      inputs.push_back(oracle::random_magnitudes(dtype, 1000, random));
    }
    EXPECT_NE(oracle::ring_tensor(what, inputs), collectives::host_sum(what, inputs))
        << base::name_of(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(All, InHostOrderRuleTest,
                         ::testing::Values(InHostCase{3, false}, InHostCase{4, false},
                                           InHostCase{8, false}, InHostCase{3, true},
                                           InHostCase{4, true}, InHostCase{8, true}),
                         [](const auto& one) {
                           return std::string(one.param.ring ? "ring_" : "host_") +
                                  std::to_string(one.param.ranks);
                         });

}  // namespace
}  // namespace ronde::runtime
