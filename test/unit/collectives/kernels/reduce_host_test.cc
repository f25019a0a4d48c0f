// SPDX-License-Identifier: Apache-2.0
// The sum of a host, for every dtype, operation and instruction set, against the serial oracle.
#include <gtest/gtest.h>

#include <memory>

#include "collectives/kernels/reduce.h"
#include "test/unit/collectives/kernels/support.h"

namespace ronde::collectives {
namespace {

using base::DType;
using base::ReduceOp;
using kernel_test::GuardedBytes;
using kernel_test::kMisalignments;
using oracle::Bytes;

// Contributions and the oracle's result, which does not depend on the number of elements.
struct Problem {
  Reduction what;
  std::vector<Bytes> inputs;
  Bytes expected;

  Problem(const Reduction& reduction, std::size_t ranks, std::int64_t elements, unsigned seed)
      : what(reduction) {
    std::mt19937_64 random(seed);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      Bytes input(static_cast<std::size_t>(elements * base::size_of(what.dtype)));
      for (std::int64_t i = 0; i < elements; ++i) {
        oracle::store(what.dtype, input.data(), i,
                      kernel_test::random_element(what.dtype, ranks, random));
      }
      inputs.push_back(std::move(input));
    }
    expected = oracle::allreduce_of_host(what, inputs);
  }
};

enum class Destinations { kOneElsewhere, kThreeElsewhere, kEverySource, kLastSource };

struct Layout {
  std::int64_t elements;
  std::size_t alignment;  // moves the alignments of all memory
  Destinations destinations;
};

std::vector<GuardedBytes> memory_for(const Problem& problem, const Layout& layout,
                                     std::size_t bytes) {
  std::vector<GuardedBytes> memory;
  const std::size_t others = layout.destinations == Destinations::kThreeElsewhere ? 3
                             : layout.destinations == Destinations::kOneElsewhere ? 1
                                                                                  : 0;
  const Bytes junk(bytes, std::byte{0x3c});
  const std::size_t ranks = problem.inputs.size();
  for (std::size_t i = 0; i < ranks + others; ++i) {
    const std::size_t alignment = (layout.alignment + 5 * i) % kMisalignments.size();
    memory.emplace_back(kMisalignments[alignment],
                        std::span(i < ranks ? problem.inputs[i] : junk).first(bytes),
                        static_cast<std::byte>(0x91 + 7 * i));
  }
  return memory;
}

void check(InstructionSet set, const Problem& problem, const Layout& layout) {
  const Reduction& what = problem.what;
  const auto bytes = static_cast<std::size_t>(layout.elements * base::size_of(what.dtype));
  const std::size_t ranks = problem.inputs.size();
  std::vector<GuardedBytes> memory = memory_for(problem, layout, bytes);
  const std::size_t first_destination = layout.destinations == Destinations::kEverySource ? 0
                                        : layout.destinations == Destinations::kLastSource
                                            ? ranks - 1
                                            : ranks;
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> destinations;
  for (std::size_t i = 0; i < ranks; ++i) sources.push_back(memory[i].data());
  for (std::size_t i = first_destination; i < memory.size(); ++i) {
    destinations.push_back(memory[i].data());
  }
  kernels_for(set, what.dtype, what.op)
      .of_host(sources, destinations, layout.elements, scaling_of(what, static_cast<int>(ranks)));
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const Bytes& all = i < first_destination ? problem.inputs[i] : problem.expected;
    const auto expected = std::span(all).first(bytes);
    const std::int64_t at =
        kernel_test::first_difference(what.dtype, expected, memory[i].content());
    ASSERT_EQ(at, -1) << kernel_test::name_of(set) << ", " << ranks << " sources, "
                      << layout.elements << " elements, destinations "
                      << static_cast<int>(layout.destinations) << ", memory " << i << ": "
                      << std::hex << oracle::load(what.dtype, memory[i].content().data(), at)
                      << " instead of " << oracle::load(what.dtype, expected.data(), at);
    ASSERT_TRUE(memory[i].guards_hold())
        << kernel_test::name_of(set) << " wrote outside, " << ranks << " sources, "
        << layout.elements << " elements, memory " << i;
  }
}

constexpr std::array kAllDestinations{Destinations::kOneElsewhere, Destinations::kThreeElsewhere,
                                      Destinations::kEverySource, Destinations::kLastSource};

class HostKernelsTest : public testing::TestWithParam<kernel_test::Case> {
 protected:
  static Reduction reduction() { return {.dtype = GetParam().dtype, .op = GetParam().op}; }
};

TEST_P(HostKernelsTest, EveryLengthAtEveryMisalignment) {
  for (const std::size_t ranks : {1U, 2U, 3U}) {
    const Problem problem(reduction(), ranks, 257, 7);
    for (const InstructionSet set : kernel_test::available_sets()) {
      for (std::int64_t elements = 0; elements <= 257; elements += kernel_test::kLengthStep) {
        // Two sources run with all alignments; others with every third one, different for each
        // length.
        const std::size_t step = ranks == 2 ? 1 : 3;
        const std::size_t begin = static_cast<std::size_t>(elements) % step;
        for (std::size_t alignment = begin; alignment < kMisalignments.size(); alignment += step) {
          const auto turn = alignment + static_cast<std::size_t>(elements);
          check(set, problem, {elements, alignment, kAllDestinations[turn % 4]});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(HostKernelsTest, AnyNumberOfSources) {
  for (const std::size_t ranks : {4U, 5U, 8U, 64U}) {
    const Problem problem(reduction(), ranks, 257, 8);
    for (const InstructionSet set : kernel_test::available_sets()) {
      for (std::int64_t elements = 0; elements <= 257; elements += kernel_test::kLengthStep) {
        const auto turn = static_cast<std::size_t>(elements);
        check(set, problem, {elements, turn % kMisalignments.size(), kAllDestinations[turn % 4]});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Vectors are longer than the block in which averages are divided.
TEST_P(HostKernelsTest, LongVectors) {
  for (const std::size_t ranks : {2U, 3U, 7U}) {
    const std::int64_t elements = kernel_test::kSanitized ? 4200 : 9001;
    const Problem problem(reduction(), ranks, elements, 9);
    for (const InstructionSet set : kernel_test::available_sets()) {
      for (const Destinations destinations : kAllDestinations) {
        check(set, problem, {elements, ranks, destinations});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(HostKernelsTest, ScaledAndRoundedOnce) {
  if (!base::is_floating(GetParam().dtype)) return;  // ReduceKernelsDeathTest has the others
  for (const std::size_t ranks : {1U, 2U, 3U, 5U}) {
    for (const double prescale : {1.0, 0.1, 3.0}) {
      for (const double postscale : {1.0, 0.3, static_cast<double>(ranks)}) {
        Reduction what = reduction();
        what.prescale = prescale;
        what.postscale = postscale;
        const Problem problem(what, ranks, 150, 10);
        for (const InstructionSet set : kernel_test::available_sets()) {
          check(set, problem, {150, ranks, Destinations::kEverySource});
          check(set, problem, {149, ranks + 1, Destinations::kOneElsewhere});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(HostKernelsTest, EveryPairOfSpecialValues) {
  const std::vector<std::uint64_t> special = kernel_test::special_elements(GetParam().dtype);
  const auto count = static_cast<std::int64_t>(special.size());
  Problem problem(reduction(), 2, count * count, 0);
  for (std::int64_t i = 0; i < count * count; ++i) {
    const auto element = static_cast<std::size_t>(i);
    oracle::store(GetParam().dtype, problem.inputs[0].data(), i, special[element / special.size()]);
    oracle::store(GetParam().dtype, problem.inputs[1].data(), i, special[element % special.size()]);
  }
  problem.expected = oracle::allreduce_of_host(problem.what, problem.inputs);
  for (const InstructionSet set : kernel_test::available_sets()) {
    check(set, problem, {count * count, 0, Destinations::kOneElsewhere});
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, HostKernelsTest, testing::ValuesIn(kernel_test::all_cases()),
                         [](const auto& one) { return kernel_test::name_of(one.param); });

// ---- Averages of integers: every value and every divisor that could be special.

template <class T>
class IntegerAverageTest : public testing::Test {
 protected:
  static DType dtype() {
    for (const base::DTypeRow& row : base::kDTypes) {
      if (row.kind == base::DTypeKind::kInteger && row.size == sizeof(T) &&
          oracle::is_signed(row.dtype) == std::is_signed_v<T>) {
        return row.dtype;
      }
    }
    return DType::kBool;
  }

  static void check(const std::vector<T>& values, std::int64_t divisor) {
    const Scaling scaling{.divisor = divisor};
    std::vector<T> quotients(values.size());
    const auto* source = reinterpret_cast<const std::byte*>(values.data());
    auto* destination = reinterpret_cast<std::byte*>(quotients.data());
    for (const InstructionSet set : kernel_test::available_sets()) {
      kernels_for(set, dtype(), ReduceOp::kAverage)
          .of_host({&source, 1}, {&destination, 1}, static_cast<std::int64_t>(values.size()),
                   scaling);
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(quotients[i], quotient(values[i], divisor))
            << kernel_test::name_of(set) << ": " << +values[i] << " / " << divisor;
      }
    }
  }

  static T quotient(T value, std::int64_t divisor) {
    if constexpr (std::is_signed_v<T>) {
      return static_cast<T>(std::int64_t{value} / divisor);
    } else {
      return static_cast<T>(std::uint64_t{value} / static_cast<std::uint64_t>(divisor));
    }
  }

  // Returns values next to multiples of the divisor, next to powers of two, and random ones.
  static std::vector<T> values_for(std::int64_t divisor) {
    std::vector<T> values;
    std::mt19937_64 random(static_cast<std::uint64_t>(divisor));
    for (int i = 0; i < 2000; ++i) {
      const std::uint64_t any = random() >> (random() % 64);
      const std::uint64_t multiple =
          any / static_cast<std::uint64_t>(divisor) * static_cast<std::uint64_t>(divisor);
      const std::uint64_t power = std::uint64_t{1} << (i % 64);
      for (const std::uint64_t near : {any, multiple, power, 0 - multiple, 0 - power}) {
        for (const std::uint64_t value : {near - 1, near, near + 1}) {
          values.push_back(static_cast<T>(value));
        }
      }
    }
    return values;
  }
};

using Integers = testing::Types<std::uint32_t, std::int32_t, std::uint64_t, std::int64_t>;
TYPED_TEST_SUITE(IntegerAverageTest, Integers);

TYPED_TEST(IntegerAverageTest, TruncatesForEveryDivisor) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t divisor = 2; divisor <= (kernel_test::kSanitized ? 20 : 300); ++divisor) {
    divisors.push_back(divisor);
  }
  for (int power = 9; power <= 31; ++power) {
    for (const int step : {-1, 0, 1}) divisors.push_back((std::int64_t{1} << power) + step);
  }
  for (const std::int64_t divisor : {641, 1000, 9999, 65521, 1'000'003, 2'147'483'647}) {
    divisors.push_back(divisor);
  }
  for (const std::int64_t divisor : divisors) {
    this->check(this->values_for(divisor), divisor);
    if (this->HasFatalFailure()) return;
  }
}

TEST(HostKernels, SixteenBitsRoundOnce) {
  // 2048 + 1 is a tie in f16 and would round to 2048, twice.
  const std::array<std::uint16_t, 3> values{0x6800, 0x3c00, 0x3c00};
  std::array<const std::byte*, 3> sources{};
  for (std::size_t i = 0; i < 3; ++i) sources[i] = reinterpret_cast<const std::byte*>(&values[i]);
  const Reduction what{.dtype = DType::kF16, .op = ReduceOp::kSum};
  for (const InstructionSet set : kernel_test::available_sets()) {
    std::uint16_t sum = 0;
    auto* destination = reinterpret_cast<std::byte*>(&sum);
    kernels_for(set, what.dtype, what.op)
        .of_host(sources, {&destination, 1}, 1, scaling_of(what, 3));
    EXPECT_EQ(sum, 0x6801) << kernel_test::name_of(set);  // 2050
  }
}

}  // namespace
}  // namespace ronde::collectives
