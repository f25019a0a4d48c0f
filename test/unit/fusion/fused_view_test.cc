// SPDX-License-Identifier: Apache-2.0
#include "fusion/fused_view.h"

#include <gtest/gtest.h>

#include <algorithm>
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

// What a view says lies in a chunk, through its inputs.
Memory chunk_of(const FusedView& view, int chunk) {
  Memory result(view.chunk_bytes(chunk).size());
  view.copy_in(chunk, 0, result);
  return result;
}

TEST(FusedView, PartsAreTheSameBytesInAnotherOrder) {
  std::mt19937 random(17);
  for (int round = 0; round < 200; ++round) {
    Tensors tensors({below(300, random), below(300, random), below(5, random)}, random);
    const int chunks = 1 + static_cast<int>(below(4, random));
    const FusedView source(tensors.views, chunks);
    std::vector<std::vector<ViewPart>> parts(1 + random() % 4);
    std::vector<Memory> expected(parts.size());
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      for (std::uint64_t k = random() % 4; k > 0; --k) {
        const int chunk = static_cast<int>(below(chunks, random));
        const Memory whole = chunk_of(source, chunk);
        const std::int64_t begin = below(std::ssize(whole) + 1, random);
        const std::int64_t end = begin + below(std::ssize(whole) - begin + 1, random);
        parts[i].push_back({chunk, {begin, end}});
        expected[i].insert(expected[i].end(), whole.begin() + begin, whole.begin() + end);
        bytes += end - begin;
      }
    }
    const FusedView view = FusedView::of_parts(source, parts);
    ASSERT_EQ(view.chunks(), static_cast<int>(parts.size()));
    ASSERT_EQ(view.bytes().value(), bytes);
    ASSERT_EQ(view.dtype(), DType::kU8);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const int chunk = static_cast<int>(i);
      ASSERT_EQ(chunk_of(view, chunk), expected[i]);
      // The outputs are the same places: bytes of no part stay zero, and those of one come through.
      view.copy_across(chunk, 0, view.chunk_bytes(chunk).value());
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      for (const ViewPart& part : parts[i]) {
        source.for_each_fragment(
            part.chunk, part.range.begin, part.range.length(),
            [](const std::byte* input, const std::byte* output, std::int64_t length) {
              ASSERT_TRUE(std::equal(input, input + length, output));
            });
      }
    }
  }
}

TEST(FusedView, OneChunkCanBeRedirectedToEngineMemory) {
  std::mt19937 random(3);
  Tensors tensors({100, 77, 300}, random);
  const FusedView source(tensors.views, 3);
  const auto bytes = static_cast<std::size_t>(source.chunk_bytes(1).value());
  Memory memory(bytes);

  const FusedView in = source.with_output_at(1, memory.data());
  for (int chunk = 0; chunk < 3; ++chunk) {
    EXPECT_EQ(chunk_of(in, chunk), chunk_of(source, chunk));
    in.copy_across(chunk, 0, in.chunk_bytes(chunk).value());
  }
  EXPECT_EQ(memory, chunk_of(source, 1));
  for (const Memory& output : tensors.outputs) EXPECT_EQ(output, Memory(output.size()));

  const FusedView out = source.with_input_at(1, memory.data());
  EXPECT_EQ(chunk_of(out, 1), memory);
  out.copy_across(1, 0, source.chunk_bytes(1).value());
  out.for_each_fragment(0, 0, source.chunk_bytes(0).value(),
                        [](const std::byte* input, const std::byte* output, std::int64_t) {
                          EXPECT_EQ(input, nullptr);
                          EXPECT_NE(output, nullptr);
                        });
  source.for_each_fragment(
      1, 0, source.chunk_bytes(1).value(),
      [](const std::byte* input, const std::byte* output, std::int64_t length) {
        EXPECT_TRUE(std::equal(input, input + length, output));
      });
}

}  // namespace
}  // namespace ronde::fusion
