// SPDX-License-Identifier: Apache-2.0
// Allreduce in place on the board: many tensors of odd sizes, between collectives that stream,
// stepped in one thread in random orders and by a thread per rank. Every result has the bits that
// the streaming path gives.
#include "collectives/in_host/in_place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/board/arena.h"
#include "collectives/in_host/allreduce.h"
#include "collectives/kernels/floating_point_mode.h"
#include "test/unit/collectives/boards.h"
#include "test/unit/collectives/ring_oracle.h"

namespace ronde::collectives {
namespace {

using Memory = std::vector<std::byte>;

// One allreduce, as all ranks know it.
struct Call {
  Reduction what;
  bool in_place = true;
  std::vector<std::vector<Memory>> inputs;  // by rank, then tensor
  std::vector<Memory> expected;             // by tensor
};

std::vector<Call> make_calls(std::int32_t ranks, std::int64_t slot_bytes, int count,
                             std::uint64_t seed, std::int64_t most_elements) {
  std::mt19937_64 random(seed);
  const auto most_tensors = static_cast<std::uint64_t>(slot_bytes) / sizeof(std::uint64_t);
  std::vector<Call> calls;
  for (int i = 0; i < count; ++i) {
    Call call;
    do {
      call.what.dtype = base::kDTypes[random() % 13].dtype;
      call.what.op = base::kReduceOps[random() % 8].op;
    } while (!base::is_defined(call.what.dtype, call.what.op));
    if (base::is_floating(call.what.dtype) && random() % 2 == 0) call.what.prescale = 0.3;
    call.in_place = random() % 3 != 0;
    std::vector<std::int64_t> sizes(1 + random() % std::min<std::uint64_t>(most_tensors, 5));
    for (std::int64_t& size : sizes) {
      size = static_cast<std::int64_t>(random() % 4 == 0 ? random() % 3 : random()) % most_elements;
      size = std::abs(size);
    }
    call.inputs.resize(static_cast<std::size_t>(ranks));
    for (const std::int64_t size : sizes) {
      std::vector<Memory> contributions;
      for (auto& mine : call.inputs) {
        mine.push_back(oracle::random_elements(call.what.dtype, size, random));
        contributions.push_back(mine.back());
      }
      call.expected.push_back(oracle::allreduce_of_host(call.what, contributions));
    }
    calls.push_back(std::move(call));
  }
  return calls;
}

// One rank that runs the calls one after another; its tensors live in its arena.
class RankOfCalls {
 public:
  RankOfCalls(const Board& board, const std::vector<Call>& calls)
      : slots_(board), arena_(board.arena(board.rank())), calls_(calls) {
    // Ranks allocate different amounts first, so that their tensors lie at different places.
    for (std::int32_t i = 0; i < board.rank(); ++i)
      EXPECT_TRUE(arena_.allocate(base::Bytes(1)).ok());
  }

  [[nodiscard]] bool finished() const { return next_ == calls_.size(); }
  [[nodiscard]] const std::string& problem() const { return problem_; }

  bool step() {
    if (finished() || !problem_.empty()) return false;
    const ScopedFloatingPointMode mode;
    if (current_ == nullptr) make();
    const auto result = current_->step();
    if (!result.ok()) {
      problem_ = result.status().to_string();
      return true;
    }
    if (*result == StepResult::kDone) end();
    return *result != StepResult::kIdle;
  }

 private:
  void make() {
    const Call& call = calls_[next_];
    for (const Memory& input : call.inputs[static_cast<std::size_t>(slots_.rank())]) {
      const auto place = arena_.allocate(base::Bytes(static_cast<std::int64_t>(input.size())));
      ASSERT_TRUE(place.ok()) << place.status().message();
      if (!input.empty()) std::memcpy(place->data(), input.data(), input.size());
      const std::int64_t elements =
          static_cast<std::int64_t>(input.size()) / base::size_of(call.what.dtype);
      memory_.push_back(place->data());
      std::byte* const at = input.empty() ? nullptr : place->data();
      views_.push_back({at, at, base::Elements(elements), call.what.dtype});
    }
    current_ = call.in_place
                   ? in_host_allreduce_in_place(slots_, views_, call.what)
                   : in_host_allreduce(slots_, fusion::FusedView(views_, 1), call.what, {});
  }
  void end() {
    const Call& call = calls_[next_];
    for (std::size_t i = 0; i < views_.size(); ++i) {
      const Memory is(memory_[i], memory_[i] + call.expected[i].size());
      const std::int64_t wrong = oracle::first_difference(call.what.dtype, is, call.expected[i]);
      if (wrong >= 0) {
        problem_ = "rank " + std::to_string(slots_.rank()) + ", call " + std::to_string(next_) +
                   ", tensor " + std::to_string(i) + ", element " + std::to_string(wrong);
      }
      // The memory is the rank's again: a rank that still writes into it spoils the next call.
      arena_.release(memory_[i]);
    }
    current_.reset();
    views_.clear();
    memory_.clear();
    ++next_;
  }

  Slots slots_;
  Arena arena_;
  const std::vector<Call>& calls_;
  std::vector<base::TensorView> views_;
  std::vector<std::byte*> memory_;
  std::unique_ptr<Collective> current_;
  std::size_t next_ = 0;
  std::string problem_;
};

BoardGeometry with_arena(std::int32_t ranks, std::int64_t slot_bytes) {
  BoardGeometry geometry = small(ranks);
  geometry.slot_bytes = slot_bytes;
  geometry.arena_bytes = std::int64_t{64} << 20;
  return geometry;
}

class InHostInPlaceTest : public testing::TestWithParam<int> {};

TEST_P(InHostInPlaceTest, EveryOrderOfStepsGivesTheBitsOfASerialSum) {
  const std::int32_t ranks = GetParam();
  for (std::uint64_t seed = 0; seed < 15; ++seed) {
    const BoardGeometry geometry = with_arena(ranks, std::int64_t{64} * ranks);
    const auto calls = make_calls(ranks, geometry.slot_bytes, 12, seed, 700);
    const std::vector<Board> boards = make_boards(geometry);
    std::vector<std::unique_ptr<RankOfCalls>> all;
    for (const Board& board : boards) all.push_back(std::make_unique<RankOfCalls>(board, calls));
    std::mt19937_64 random(seed);
    int idle = 0;
    while (idle < 1000 &&
           !std::all_of(all.begin(), all.end(), [](auto& r) { return r->finished(); })) {
      RankOfCalls& chosen = *all[random() % all.size()];
      const std::uint64_t steps = random() % 8 == 0 ? 1000 : random() % 4;
      for (std::uint64_t i = 0; i < steps && chosen.step(); ++i) idle = 0;
      ASSERT_EQ(chosen.problem(), "") << "seed " << seed;
      ++idle;
    }
    EXPECT_LT(idle, 1000) << "stuck; seed " << seed;
  }
}

TEST_P(InHostInPlaceTest, ThreadsGiveTheBitsOfASerialSum) {
  const std::int32_t ranks = GetParam();
  const BoardGeometry geometry = with_arena(ranks, BoardGeometry().slot_bytes);
  const auto calls = make_calls(ranks, geometry.slot_bytes, 12, 99, 30000);
  const std::vector<Board> boards = make_boards(geometry);
  std::vector<std::thread> threads;
  for (const Board& board : boards) {
    threads.emplace_back([&board, &calls] {
      RankOfCalls rank(board, calls);
      while (!rank.finished() && rank.problem().empty()) {
        if (!rank.step()) std::this_thread::yield();
      }
      EXPECT_EQ(rank.problem(), "");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Ranks, InHostInPlaceTest, testing::Values(1, 2, 3, 4, 5, 8),
                         testing::PrintToStringParamName());

// The part of a rank is larger than what one step sums.
TEST(InHostInPlace, ALargePartTakesSeveralSteps) {
  BoardGeometry geometry = with_arena(1, 4096);
  const std::vector<Board> boards = make_boards(geometry);
  Slots slots(boards[0]);
  Arena arena(boards[0].arena(0));
  constexpr std::int64_t kElements = (std::int64_t{2} << 20) + 3;
  const auto place = *arena.allocate(base::Bytes(kElements));
  std::fill(place.begin(), place.end(), std::byte{3});
  const auto collective = in_host_allreduce_in_place(
      slots, {{place.data(), place.data(), base::Elements(kElements), base::DType::kU8}},
      {base::DType::kU8, base::ReduceOp::kSum});
  int steps = 1;
  while (*collective->step() != StepResult::kDone) ++steps;
  EXPECT_EQ(steps, 4);
  EXPECT_TRUE(std::all_of(place.begin(), place.end(), [](auto b) { return b == std::byte{3}; }));
}

TEST(InHostInPlace, FitsAsManyTensorsAsASlotHoldsPlaces) {
  const std::vector<Board> boards = make_boards(with_arena(1, 128));
  const Slots slots(boards[0]);
  EXPECT_TRUE(fits_in_place(slots, 16));
  EXPECT_FALSE(fits_in_place(slots, 17));
}

TEST(InHostInPlace, RefusesMemoryOutsideTheArenaAndPlacesThatCannotBe) {
  const std::vector<Board> boards = make_boards(with_arena(2, 128));
  Slots mine(boards[0]);
  Slots other(boards[1]);
  std::vector<float> outside(1);
  auto* const bytes = reinterpret_cast<std::byte*>(outside.data());
  const Reduction sum{base::DType::kF32, base::ReduceOp::kSum};
  {
    Slots slots(boards[0]);
    const auto refused = in_host_allreduce_in_place(
                             slots, {{bytes, bytes, base::Elements(1), base::DType::kF32}}, sum)
                             ->step();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), base::Code::kInternal);
  }
  std::byte* const place = boards[0].arena(0).data();
  const auto collective =
      in_host_allreduce_in_place(mine, {{place, place, base::Elements(1), base::DType::kF32}}, sum);
  ASSERT_TRUE(collective->step().ok());
  const std::uint64_t nowhere = boards[0].arena(1).size() - 3;
  std::memcpy(other.buffer(1, 0), &nowhere, sizeof(nowhere));
  other.post_filled(0);
  const auto refused = collective->step();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("rank 1"), std::string::npos);
}

}  // namespace
}  // namespace ronde::collectives
