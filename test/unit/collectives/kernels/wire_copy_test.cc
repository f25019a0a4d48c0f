// SPDX-License-Identifier: Apache-2.0
// Copies between tensors and slots: any range of any list of tensors, in the view's dtype or in 16
// bits, and not a byte beside it.
#include "collectives/kernels/wire_copy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "test/unit/collectives/random_elements.h"

namespace ronde::collectives {
namespace {

using base::DType;
using Memory = std::vector<std::byte>;

constexpr std::byte kUntouched{0xC3};

// Three tensors with an empty one between them.
struct Tensors {
  explicit Tensors(DType dtype) {
    std::mt19937_64 random(7);
    for (const std::int64_t elements : {37, 0, 5, 130}) {
      inputs.push_back(oracle::random_elements(dtype, elements, random));
      all.insert(all.end(), inputs.back().begin(), inputs.back().end());
      outputs.emplace_back(inputs.back().size(), kUntouched);
      views.push_back(
          {inputs.back().data(), outputs.back().data(), base::Elements(elements), dtype});
    }
  }
  [[nodiscard]] Memory output() const {
    Memory result;
    for (const Memory& one : outputs) result.insert(result.end(), one.begin(), one.end());
    return result;
  }

  std::vector<Memory> inputs;
  std::vector<Memory> outputs;
  std::vector<base::TensorView> views;
  Memory all;
};

struct Param {
  DType user;
  DType wire;
};

class WireCopyTest : public testing::TestWithParam<Param> {
 protected:
  // Returns what a slot holds for elements [begin, end).
  [[nodiscard]] static Memory on_wire(const Memory& all, std::int64_t begin, std::int64_t end) {
    const auto [user, wire] = GetParam();
    Memory result(static_cast<std::size_t>((end - begin) * base::size_of(wire)));
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint64_t bits = oracle::load(user, all.data(), i);
      oracle::store(wire, result.data(), i - begin,
                    user == wire ? bits : oracle::encode(wire, oracle::decode(user, bits)));
    }
    return result;
  }
  static void expect_copies(std::int64_t begin, std::int64_t end, StoreKind kind) {
    const auto [user, wire] = GetParam();
    Tensors tensors(user);
    const fusion::FusedView view(tensors.views, 1);
    const WireCopy copy(view, wire);
    EXPECT_EQ(copy.elements(0), 172);
    EXPECT_EQ(copy.compresses(), user != wire);
    const Memory expected = on_wire(tensors.all, begin, end);

    Memory slot(expected.size() + 64, kUntouched);
    copy.in(0, {begin, end}, slot.data(), kind);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), slot.begin()));
    for (std::size_t i = expected.size(); i < slot.size(); ++i) ASSERT_EQ(slot[i], kUntouched);

    copy.out(0, {begin, end}, slot.data());
    const std::int64_t size = base::size_of(user);
    Memory result(tensors.all.size(), kUntouched);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint64_t bits = oracle::load(wire, expected.data(), i - begin);
      oracle::store(user, result.data(), i,
                    user == wire ? bits : oracle::encode(user, oracle::decode(wire, bits)));
    }
    EXPECT_EQ(tensors.output(), result) << size << " bytes each";
  }
};

TEST_P(WireCopyTest, AnyRangeAndNothingBesideIt) {
  for (const StoreKind kind : {StoreKind::kTemporal, StoreKind::kStreaming}) {
    for (const std::int64_t begin : {0, 1, 36, 37, 40, 42, 171, 172}) {
      for (const std::int64_t end : {0, 1, 37, 38, 42, 43, 100, 171, 172}) {
        if (end < begin) continue;
        expect_copies(begin, end, kind);
        ASSERT_FALSE(HasFailure()) << "elements " << begin << " to " << end;
      }
    }
  }
}

TEST_P(WireCopyTest, ATensorWithoutAnOutputIsPassedOver) {
  const auto [user, wire] = GetParam();
  Tensors tensors(user);
  tensors.views[0].output = nullptr;
  const fusion::FusedView view(tensors.views, 1);
  const WireCopy copy(view, wire);
  const Memory slot = on_wire(tensors.all, 0, 172);
  copy.out(0, {0, 172}, slot.data());
  EXPECT_EQ(tensors.outputs[0], Memory(tensors.inputs[0].size(), kUntouched));
  EXPECT_NE(tensors.outputs[3], Memory(tensors.inputs[3].size(), kUntouched));
}

INSTANTIATE_TEST_SUITE_P(
    All, WireCopyTest,
    testing::Values(Param{DType::kU8, DType::kU8}, Param{DType::kF16, DType::kF16},
                    Param{DType::kF32, DType::kF32}, Param{DType::kF64, DType::kF64},
                    Param{DType::kF32, DType::kBf16}, Param{DType::kF32, DType::kF16}),
    [](const auto& one) {
      return std::string(base::name_of(one.param.user)) + "_as_" +
             std::string(base::name_of(one.param.wire));
    });

}  // namespace
}  // namespace ronde::collectives
