// SPDX-License-Identifier: Apache-2.0
#include "collectives/kernels/copy.h"

#include <gtest/gtest.h>

#include "test/unit/collectives/kernels/float16_numbers.h"
#include "test/unit/collectives/kernels/support.h"

namespace ronde::collectives {
namespace {

using base::DType;
using kernel_test::GuardedBytes;
using kernel_test::kMisalignments;
using oracle::Bytes;

constexpr std::array kStores{StoreKind::kTemporal, StoreKind::kStreaming};

Bytes random_bytes(std::size_t count) {
  std::mt19937_64 random(count);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Runs `copy(to, from)` between guarded memory at the misalignments, and compares.
template <class Copy>
void check(DType dtype, std::span<const std::byte> source, std::span<const std::byte> expected,
           std::size_t from_misaligned, std::size_t to_misaligned, const Copy& copy) {
  GuardedBytes from(from_misaligned, source);
  GuardedBytes to(to_misaligned, Bytes(expected.size(), std::byte{0x3c}), std::byte{0x5b});
  copy(to.data(), from.data());
  const std::int64_t at = kernel_test::first_difference(dtype, expected, to.content());
  ASSERT_EQ(at, -1) << std::hex << oracle::load(dtype, to.content().data(), at) << " instead of "
                    << oracle::load(dtype, expected.data(), at);
  ASSERT_TRUE(to.guards_hold()) << "wrote outside";
  ASSERT_TRUE(from.guards_hold() &&
              std::equal(source.begin(), source.end(), from.content().begin()));
}

TEST(CopyKernels, BytesOfEveryLengthAtEveryMisalignment) {
  const Bytes source = random_bytes(1500);
  for (std::size_t bytes = 0; bytes <= source.size();
       bytes += bytes < 400 ? std::size_t{kernel_test::kLengthStep} : 97) {
    for (const std::size_t from : {0U, 1U, 8U, 33U}) {
      for (const std::size_t to : kMisalignments) {
        const auto content = std::span(source).first(bytes);
        const auto count = static_cast<std::int64_t>(bytes);
        for (const StoreKind kind : kStores) {
          check(DType::kU8, content, content, from, to,
                [&](std::byte* target, const std::byte* origin) {
                  copy_bytes(target, origin, count, kind);
                });
        }
        for (const InstructionSet set : kernel_test::available_sets()) {
          check(DType::kU8, content, content, from, to,
                [&](std::byte* target, const std::byte* origin) {
                  copy_kernels_for(set).copy_streaming(target, origin, count);
                });
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(CopyKernels, NothingFromNowhere) {
  for (const StoreKind kind : kStores) {
    copy_bytes(nullptr, nullptr, 0, kind);
    narrow_to_wire(DType::kF16, nullptr, nullptr, 0, kind);
  }
  widen_from_wire(DType::kBf16, nullptr, nullptr, 0);
}

class WireTest : public testing::TestWithParam<DType> {
 protected:
  static CopyKernels::Narrow narrow(InstructionSet set) {
    const CopyKernels& kernels = copy_kernels_for(set);
    return GetParam() == DType::kF16 ? kernels.narrow_to_f16 : kernels.narrow_to_bf16;
  }
  static CopyKernels::Widen widen(InstructionSet set) {
    const CopyKernels& kernels = copy_kernels_for(set);
    return GetParam() == DType::kF16 ? kernels.widen_from_f16 : kernels.widen_from_bf16;
  }
  static Bytes narrowed(const Bytes& source) {
    Bytes result(source.size() / 2);
    for (std::size_t i = 0; i < source.size() / 4; ++i) {
      const auto index = static_cast<std::int64_t>(i);
      const double value =
          oracle::decode(DType::kF32, oracle::load(DType::kF32, source.data(), index));
      oracle::store(GetParam(), result.data(), index, oracle::encode(GetParam(), value));
    }
    return result;
  }
  static Bytes widened(const Bytes& source) {
    Bytes result(source.size() * 2);
    for (std::size_t i = 0; i < source.size() / 2; ++i) {
      const auto index = static_cast<std::int64_t>(i);
      const double value =
          oracle::decode(GetParam(), oracle::load(GetParam(), source.data(), index));
      oracle::store(DType::kF32, result.data(), index, oracle::encode(DType::kF32, value));
    }
    return result;
  }
  // Ordinary, special and random numbers.
  static Bytes f32_numbers(std::int64_t count) {
    std::mt19937_64 random(5);
    Bytes bytes(static_cast<std::size_t>(4 * count));
    for (std::int64_t i = 0; i < count; ++i) {
      oracle::store(DType::kF32, bytes.data(), i,
                    kernel_test::random_element(DType::kF32, 1, random));
    }
    return bytes;
  }
};

TEST_P(WireTest, EveryLengthAtEveryMisalignment) {
  const Bytes wide = f32_numbers(257);
  const Bytes narrow_bytes = narrowed(wide);
  const Bytes wide_again = widened(narrow_bytes);
  for (std::size_t count = 0; count <= 257; count += std::size_t{kernel_test::kLengthStep}) {
    const auto elements = static_cast<std::int64_t>(count);
    for (const std::size_t from : {0U, 1U, 2U, 33U}) {
      for (const std::size_t to : kMisalignments) {
        for (const InstructionSet set : kernel_test::available_sets()) {
          for (const StoreKind kind : kStores) {
            check(GetParam(), std::span(wide).first(4 * count),
                  std::span(narrow_bytes).first(2 * count), from, to,
                  [&](std::byte* target, const std::byte* origin) {
                    narrow(set)(target, origin, elements, kind);
                  });
          }
          check(DType::kF32, std::span(narrow_bytes).first(2 * count),
                std::span(wide_again).first(4 * count), from, to,
                [&](std::byte* target, const std::byte* origin) {
                  widen(set)(target, origin, elements);
                });
          ASSERT_FALSE(HasFatalFailure())
              << kernel_test::name_of(set) << ", " << count << " elements";
        }
      }
    }
  }
}

TEST_P(WireTest, EveryValueWidensAndComesBack) {
  Bytes every(2 * 65536);
  for (std::int64_t i = 0; i < 65536; ++i) {
    oracle::store(GetParam(), every.data(), i, static_cast<std::uint64_t>(i));
  }
  const Bytes expected = widened(every);
  for (const InstructionSet set : kernel_test::available_sets()) {
    check(DType::kF32, every, expected, 0, 0,
          [&](std::byte* to, const std::byte* from) { widen(set)(to, from, 65536); });
    check(GetParam(), expected, every, 0, 0, [&](std::byte* to, const std::byte* from) {
      narrow(set)(to, from, 65536, StoreKind::kTemporal);
    });
    ASSERT_FALSE(HasFatalFailure()) << kernel_test::name_of(set);
  }
}

// This covers all roundings: the f32 numbers around each 16-bit number, and random bits.
TEST_P(WireTest, RoundsAsTheOneNumberAtATimeConversionDoes) {
  constexpr std::int64_t kCount = kernel_test::kSanitized ? 100'000 : 2'000'000;
  std::mt19937_64 random(6);
  Bytes source(4 * kCount);
  Bytes expected(2 * kCount);
  for (std::int64_t i = 0; i < kCount; ++i) {
    auto bits = static_cast<std::uint32_t>(random());
    if (i % 2 == 0) {
      const float near = to_f32(Float16{static_cast<std::uint16_t>(random())});
      const std::uint32_t offset =
          std::array{0U, 1U, 0xfffU, 0x1000U, 0x1001U, 0x8000U}[random() % 6];
      bits = std::bit_cast<std::uint32_t>(near) + offset;
    }
    const auto value = std::bit_cast<float>(bits);
    oracle::store(DType::kF32, source.data(), i, bits);
    oracle::store(GetParam(), expected.data(), i,
                  GetParam() == DType::kF16 ? to_f16(value).bits : to_bf16(value).bits);
  }
  for (const InstructionSet set : kernel_test::available_sets()) {
    for (const StoreKind kind : kStores) {
      check(GetParam(), source, expected, 0, 0,
            [&](std::byte* to, const std::byte* from) { narrow(set)(to, from, kCount, kind); });
      ASSERT_FALSE(HasFatalFailure()) << kernel_test::name_of(set);
    }
  }
}

TEST_P(WireTest, TheBestKernelsRun) {
  const float one = 1.0F;
  std::uint16_t bits = 0;
  narrow_to_wire(GetParam(), reinterpret_cast<std::byte*>(&bits),
                 reinterpret_cast<const std::byte*>(&one), 1, StoreKind::kStreaming);
  EXPECT_EQ(bits, oracle::encode(GetParam(), 1.0));
  float back = 0;
  widen_from_wire(GetParam(), reinterpret_cast<std::byte*>(&back),
                  reinterpret_cast<const std::byte*>(&bits), 1);
  EXPECT_EQ(back, 1.0F);
}

INSTANTIATE_TEST_SUITE_P(Types, WireTest, testing::Values(DType::kF16, DType::kBf16),
                         [](const auto& one) { return std::string(base::name_of(one.param)); });

TEST(CopyKernelsDeathTest, OnlySixteenBitsTravelForF32) {
  EXPECT_DEATH(widen_from_wire(DType::kF32, nullptr, nullptr, 0), "narrower on the wire");
}

}  // namespace
}  // namespace ronde::collectives
