// SPDX-License-Identifier: Apache-2.0
// What the facade takes as a tensor, and of which elements. What it refuses to compile is in
// test/outside/refused.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include <ronde/ronde.hpp>

#include "test/unit/bindings/local_ranks.h"

namespace outsider {

// A type like c10::BFloat16: 16 bits and functions.
struct alignas(2) BFloat16 {
  std::uint16_t x;

  BFloat16() = default;
  explicit BFloat16(float value)
      : x(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16)) {}
  explicit operator float() const { return std::bit_cast<float>(std::uint32_t{x} << 16); }
};

}  // namespace outsider

template <>
struct ronde::dtype_traits<outsider::BFloat16> {
  static constexpr ronde_dtype value = RONDE_BF16;
};

namespace {

using ronde::testing::on_ranks;

static_assert(ronde::dtype_traits<float>::value == RONDE_F32);
static_assert(ronde::dtype_traits<char>::value == (std::is_signed_v<char> ? RONDE_I8 : RONDE_U8));
static_assert(ronde::dtype_traits<long long>::value == RONDE_I64);
static_assert(ronde::dtype_traits<unsigned short>::value == RONDE_U16);
static_assert(ronde::dtype_traits<bool>::value == RONDE_BOOL);
#if defined(__FLT16_MANT_DIG__)
static_assert(ronde::dtype_traits<_Float16>::value == RONDE_F16);
#endif

static_assert(ronde::OutputRange<std::vector<float>&>);
static_assert(ronde::OutputRange<std::span<float>>);
static_assert(ronde::OutputRange<const std::span<float>&>);
static_assert(ronde::OutputRange<float (&)[3]>);
static_assert(ronde::OutputRange<ronde::Buffer<float>&>);
static_assert(ronde::TensorRange<const std::vector<float>&>);
static_assert(!ronde::OutputRange<const std::vector<float>&>);
static_assert(!ronde::TensorRange<std::vector<float>>);
static_assert(!ronde::TensorRange<std::vector<bool>&>);

TEST(Tensors, AreContainersThatHaveAName) {
  on_ranks(2, [](ronde::Engine& engine) {
    const float mine = static_cast<float>(engine.rank());
    std::vector<float> values(3, mine);
    engine.allreduce("g", values, ronde::sum).wait();
    EXPECT_EQ(values, std::vector<float>(3, 1.0F));

    const std::vector<float> input(3, mine + 1);
    engine.allreduce("out of place", input, values, ronde::sum).wait();
    EXPECT_EQ(values, std::vector<float>(3, 3.0F));
    engine.allreduce("mixed", std::span(input), values, ronde::max).wait();
    EXPECT_EQ(values, std::vector<float>(3, 2.0F));
    engine.allreduce_blocking("blocking", values, ronde::sum);
    EXPECT_EQ(values[2], 4.0F);

    std::array<std::int32_t, 2> array{engine.rank(), 7};
    engine.broadcast("array", array, 1).wait();
    engine.broadcast_blocking("array", array, 0);
    EXPECT_EQ(array[0], 1);
    double plain[2] = {1.0, 2.0};
    engine.allreduce_blocking("plain", plain, ronde::sum);
    EXPECT_EQ(plain[1], 4.0);

    EXPECT_EQ(engine.allgather_blocking("gather", array).size(), 4U);
    ronde::Work gathered = engine.allgather("gather", input);
    gathered.wait();
    EXPECT_EQ(gathered.output<float>()[5], 2.0F);
    std::vector<std::int32_t> share(1);
    engine.reduce_scatter("scatter", array, share, ronde::sum).wait();
    EXPECT_EQ(share[0], engine.rank() == 0 ? 2 : 14);
    engine.reduce_scatter_blocking("scatter", array, share, ronde::max);
    engine.all_to_all("all", array).wait();
    EXPECT_EQ(engine.all_to_all_blocking("all", array).output<std::int32_t>().size(), 2U);

    ronde::Buffer<float> buffer(engine, 4);
    buffer[3] = mine;
    engine.allreduce_blocking("buffer", buffer, ronde::sum);
    EXPECT_EQ(buffer[3], 1.0F);

    ronde::GradientAverager averager(engine);
    const auto id = averager.add("gradient", values);
    averager.ready(id);
    averager.wait();
  });
}

TEST(Tensors, OfATypeOfSomebodyElses) {
  on_ranks(2, [](ronde::Engine& engine) {
    std::vector<outsider::BFloat16> values(
        5, outsider::BFloat16(1.5F + static_cast<float>(engine.rank())));
    engine.allreduce_blocking("bf16", values, ronde::sum);
    EXPECT_EQ(static_cast<float>(values[4]), 4.0F);
    ronde::Work gathered = engine.allgather("all", values);
    gathered.wait();
    EXPECT_EQ(static_cast<float>(gathered.output<outsider::BFloat16>()[9]), 4.0F);
  });
}

#if defined(__FLT16_MANT_DIG__)
TEST(Tensors, OfTheCompilersHalfPrecision) {
  on_ranks(2, [](ronde::Engine& engine) {
    std::vector<_Float16> values(3, static_cast<_Float16>(0.5F));
    engine.allreduce_blocking("f16", values, ronde::sum);
    EXPECT_EQ(static_cast<float>(values[2]), 1.0F);
  });
}
#endif

// In C an allgather's result lies in the output that is given beside the input. Without an input
// the output is the rows that are sent, and no room for those of others.
TEST(Tensors, OfAnAllgatherLieInTheOutputThatIsGiven) {
  on_ranks(2, [](ronde::Engine& engine) {
    const auto place = static_cast<std::size_t>(2 * engine.rank());
    std::vector<float> all(4, -1.0F);
    const std::int64_t length = 2;
    for (const bool alone : {false, true}) {
      all[place] = all[place + 1] = static_cast<float>(engine.rank());
      ronde_request request;
      ronde_request_init(&request);
      request.name = "rows";
      request.input = alone ? nullptr : all.data() + place;
      request.output = alone ? all.data() + place : all.data();
      request.shape = &length;
      request.dimensions = 1;
      ronde_work* work = nullptr;
      ASSERT_EQ(ronde_allgather(engine.get(), &request, &work, nullptr), RONDE_OK);
      const void* data = nullptr;
      const std::int64_t* shape = nullptr;
      std::int32_t dimensions = 0;
      std::int32_t dtype = 0;
      ASSERT_EQ(ronde_work_output(work, &data, &shape, &dimensions, &dtype, nullptr), RONDE_OK);
      EXPECT_EQ(data == all.data(), !alone);
      EXPECT_EQ(shape[0], 4);
      const auto* const got = static_cast<const float*>(data);
      EXPECT_EQ(std::vector<float>(got, got + 4), (std::vector<float>{0, 0, 1, 1}));
      ronde_work_release(work);
    }
  });
}

}  // namespace
