// SPDX-License-Identifier: Apache-2.0
// RONDE_CHECK=finite: a rank that has a nan or inf is named before the others sum it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/tensors/finite_check.h"
#include "runtime/tensors/submission.h"
#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

using testing::allreduce_of;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// A rank of a job of each of these shapes.
void on_all_shapes(const char* check, const std::function<void(int, Engine&)>& body) {
  for (const auto& leaders :
       {std::vector<std::int32_t>{0, 0}, {0, 1}, {0, 0, 2}, {0, 1, 2}, {0, 0, 2, 2}}) {
    testing::EngineOptions options;
    options.environment = {check};
    options.shape = base::JobShape::of_leaders(leaders).value();
    testing::run_job(static_cast<int>(leaders.size()), options, body);
  }
}

// Three gradients in flight at once, which are fused. In step 3, when all of them are in the plan,
// rank 1 has one with a nan; in step 5, ranks 0 and 1 have.
TEST(FiniteCheck, NamesRankTensorAndElementOnAllRanksAndTheOthersAreSummed) {
  on_all_shapes("RONDE_CHECK=finite", [](int rank, Engine& engine) {
    const auto size = static_cast<float>(engine.size());
    for (int step = 0; step < 8; ++step) {
      std::vector<std::vector<float>> gradients(3, std::vector<float>(5000, 1.0F));
      if (step == 3 && rank == 1) gradients[1][4321] = kNan;
      if (step == 5 && rank < 2) gradients[2][7] = rank == 0 ? -kInf : kNan;
      std::vector<Engine::WorkPtr> works;
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        works.push_back(engine.submit(allreduce_of("g" + std::to_string(i), gradients[i])).value());
      }
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        const base::Status ended = engine.wait(*works[i]);
        const bool fails = (step == 3 && i == 1) || (step == 5 && i == 2);
        ASSERT_EQ(ended.ok(), !fails) << ended.message();
        if (!fails) {
          EXPECT_THAT(gradients[i], Each(size));
          continue;
        }
        EXPECT_EQ(ended.code(), base::Code::kInvalidArgument);
        EXPECT_EQ(ended.rank(), step == 3 ? 1 : 0);
        EXPECT_EQ(ended.message(),
                  std::string(step == 3 ? "'g1': rank 1 submitted nan at element 4321 of 5000"
                                        : "'g2': rank 0 submitted -inf at element 7 of 5000") +
                      " at test.cc:1, and RONDE_CHECK=finite keeps it from the other ranks: look "
                      "at its inputs and loss in this step");
        // Nothing has spread, nor been written.
        if (rank > 1) {
          EXPECT_THAT(gradients[i], Each(1.0F));
        }
      }
    }
  });
}

TEST(FiniteCheck, NamesTheMemberOfAGroup) {
  on_all_shapes("RONDE_CHECK=finite", [](int rank, Engine& engine) {
    std::vector<float> weight(100, 1.0F);
    std::vector<float> bias(10, rank == 0 ? kInf : 1.0F);
    auto group = group_of({allreduce_of("weight", weight), allreduce_of("bias", bias)}).value();
    const base::Status ended = engine.wait(*engine.submit(std::move(group)).value());
    EXPECT_THAT(ended.message(), HasSubstr("rank 0 submitted inf at element 0 of 10 of 'bias'"));
  });
}

// Off, and what is not summed: as it was.
TEST(FiniteCheck, LeavesTheRestAlone) {
  on_all_shapes("RONDE_CHECK=off", [](int, Engine& engine) {
    std::vector<float> data(10, kInf);
    EXPECT_TRUE(engine.wait(*engine.submit(allreduce_of("x", data)).value()).ok());
    EXPECT_THAT(data, Each(kInf));
  });
  on_all_shapes("RONDE_CHECK=finite", [](int, Engine& engine) {
    std::vector<float> data(10, kInf);
    EXPECT_TRUE(engine.wait(*engine.submit(testing::broadcast_of("x", data, 0)).value()).ok());
    EXPECT_TRUE(engine.wait(*engine.submit(testing::allgather_of("all", data)).value()).ok());
  });
}

// The bits of one number after 4096 that are finite.
template <typename Bits>
std::string found_in(base::DType dtype, Bits last) {
  std::vector<Bits> data(4097, Bits{1});
  data.back() = last;
  Submission submission;
  submission.name = "x";
  submission.signature.dtype = dtype;
  submission.signature.op = base::ReduceOp::kSum;
  submission.signature.shape = {4097};
  submission.views[0].input = reinterpret_cast<const std::byte*>(data.data());
  submission.views[0].output = reinterpret_cast<std::byte*>(data.data());
  return not_finite_in(*check_submission(std::move(submission), 0, 2).value());
}

TEST(FiniteCheck, KnowsEveryTypeOfNumbers) {
  using base::DType;
  const std::string place = " at element 4096 of 4097";
  EXPECT_EQ(found_in<std::uint16_t>(DType::kF16, 0x7BFF), "");  // the largest
  EXPECT_EQ(found_in<std::uint16_t>(DType::kF16, 0x7C00), "inf" + place);
  EXPECT_EQ(found_in<std::uint16_t>(DType::kF16, 0xFE00), "nan" + place);
  EXPECT_EQ(found_in<std::uint16_t>(DType::kBf16, 0x7F7F), "");
  EXPECT_EQ(found_in<std::uint16_t>(DType::kBf16, 0xFF80), "-inf" + place);
  EXPECT_EQ(found_in<std::uint16_t>(DType::kBf16, 0x7F81), "nan" + place);
  EXPECT_EQ(found_in<std::uint32_t>(DType::kF32, 0xFF7FFFFF), "");
  EXPECT_EQ(found_in<std::uint32_t>(DType::kF32, 0x7F800000), "inf" + place);
  EXPECT_EQ(found_in<std::uint32_t>(DType::kF32, 0x7F800001), "nan" + place);
  EXPECT_EQ(found_in<std::uint64_t>(DType::kF64, 0x7FEFFFFFFFFFFFFF), "");
  EXPECT_EQ(found_in<std::uint64_t>(DType::kF64, 0xFFF0000000000000), "-inf" + place);
  EXPECT_EQ(found_in<std::uint64_t>(DType::kF64, 0x7FF8000000000000), "nan" + place);
  EXPECT_EQ(found_in<std::uint32_t>(DType::kI32, 0x7F800000), "");  // no floating point
}

}  // namespace
}  // namespace ronde::runtime
