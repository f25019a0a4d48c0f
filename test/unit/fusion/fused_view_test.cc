// SPDX-License-Identifier: Apache-2.0
#include "fusion/fused_view.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <utility>

#include "fusion/chunks.h"

namespace ronde::fusion {
namespace {

using base::DType;
using base::Elements;
using base::TensorView;
using Memory = std::vector<std::byte>;

std::int64_t below(std::int64_t limit, std::mt19937& random) {
  return std::uniform_int_distribution<std::int64_t>(0, limit - 1)(random);
}

// Tensors of bytes, each with an input of its own random bytes and an output of zeros.
struct Tensors {
  std::vector<Memory> inputs;
  std::vector<Memory> outputs;
  std::vector<TensorView> views;

  Tensors(const std::vector<std::int64_t>& lengths, std::mt19937& random) {
    for (const std::int64_t length : lengths) {
      Memory input(static_cast<std::size_t>(length));
      for (std::byte& b : input) b = static_cast<std::byte>(random());
      inputs.push_back(std::move(input));
      outputs.emplace_back(static_cast<std::size_t>(length));
    }
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      views.push_back({inputs[i].data(), outputs[i].data(), Elements(lengths[i]), DType::kU8});
    }
  }
};

// The chunk, built as the definition says.
Memory chunk_by_hand(const Tensors& tensors, int chunks, int chunk) {
  Memory result;
  for (const Memory& input : tensors.inputs) {
    const ByteRange range = chunk_of_tensor(base::Bytes::of_size(input.size()), chunks, chunk);
    result.insert(result.end(), input.begin() + range.begin, input.begin() + range.end);
  }
  return result;
}

TEST(FusedView, RandomListsRoundTripInRandomPieces) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::int64_t> lengths(random() % 6);
    const std::int64_t longest = round % 2 == 0 ? 70 : 2000;
    for (std::int64_t& length : lengths) length = below(longest, random);
    Tensors tensors(lengths, random);
    const int chunks = 1 + static_cast<int>(below(9, random));
    const FusedView view(tensors.views, chunks);

    std::int64_t sum = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const Memory expected = chunk_by_hand(tensors, chunks, chunk);
      ASSERT_EQ(view.chunk_bytes(chunk).size(), expected.size());
      sum += view.chunk_bytes(chunk).value();
      for (std::int64_t offset = 0; offset < std::ssize(expected);) {
        const std::int64_t length = std::min(1 + below(300, random), std::ssize(expected) - offset);
        Memory piece(static_cast<std::size_t>(length));
        view.copy_in(chunk, offset, piece);
        ASSERT_TRUE(std::equal(piece.begin(), piece.end(), expected.begin() + offset));
        view.copy_out(chunk, offset, piece);
        offset += length;
      }
    }
    ASSERT_EQ(sum, view.bytes().value());
    ASSERT_EQ(tensors.inputs, tensors.outputs);
  }
}

TEST(FusedView, FragmentsFollowTheInputsAndOutputs) {
  std::mt19937 random(1);
  Tensors tensors({100, 0, 30}, random);
  const FusedView view(tensors.views, 1);
  std::vector<std::pair<const std::byte*, std::int64_t>> seen;
  view.for_each_fragment(0, 90, 25, [&](const std::byte* input, std::byte* output, auto bytes) {
    seen.emplace_back(input, bytes);
    EXPECT_EQ(input == tensors.inputs[0].data() + 90, output == tensors.outputs[0].data() + 90);
  });
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0],
            (std::pair<const std::byte*, std::int64_t>(tensors.inputs[0].data() + 90, 10)));
  EXPECT_EQ(seen[1], (std::pair<const std::byte*, std::int64_t>(tensors.inputs[2].data(), 15)));
}

TEST(FusedView, BlocksOfRanksAreChunks) {
  std::mt19937 random(2);
  Tensors tensors({10, 0, 300}, random);
  tensors.views[2].input = nullptr;  // another rank's
  const FusedView view = FusedView::of_chunks(DType::kU8, tensors.views);
  EXPECT_EQ(view.chunks(), 3);
  EXPECT_EQ(view.bytes().value(), 310);
  EXPECT_EQ(view.chunk_bytes(0).value(), 10);
  EXPECT_EQ(view.chunk_bytes(1).value(), 0);
  EXPECT_EQ(view.chunk_bytes(2).value(), 300);
  const Memory from(300, std::byte{5});
  view.copy_out(2, 0, from);
  EXPECT_EQ(tensors.outputs[2], from);
  view.copy_across(0, 0, 10);
  EXPECT_EQ(tensors.outputs[0], tensors.inputs[0]);
}

TEST(FusedView, TensorsWithoutOutputArePassedOver) {
  std::mt19937 random(3);
  Tensors tensors({10, 20}, random);
  tensors.views[0].output = nullptr;
  const FusedView view(tensors.views, 1);
  Memory all(30);
  view.copy_in(0, 0, all);
  view.copy_out(0, 0, all);
  EXPECT_EQ(tensors.outputs[0], Memory(10));
  EXPECT_EQ(tensors.outputs[1], tensors.inputs[1]);
}

TEST(FusedView, NothingAtAll) {
  const FusedView view({}, 4);
  EXPECT_EQ(view.bytes().value(), 0);
  EXPECT_EQ(view.chunk_bytes(3).value(), 0);
  view.copy_in(2, 0, {});
}

using FusedViewDeathTest = ::testing::Test;

TEST(FusedViewDeathTest, ARangeBeyondTheChunkIsABug) {
  std::mt19937 random(4);
  Tensors tensors({10}, random);
  const FusedView view(tensors.views, 1);
  Memory eleven(11);
  EXPECT_DEATH(view.copy_in(0, 0, eleven), "beyond its chunk");
}

}  // namespace
}  // namespace ronde::fusion
