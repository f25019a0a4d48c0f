// SPDX-License-Identifier: Apache-2.0
// The floor moves bytes as an allreduce does, in windows and pieces; two counters of each rank
// order what the ranks do.
#include "test/bench/support/floor_protocol.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "test/bench/support/floor_sum.h"
#include "test/bench/support/memory.h"

namespace ronde::bench {

namespace {

constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kLineFloats = 16;
constexpr std::array<std::int64_t, 3> kPieces{32 << 10, 128 << 10, 256 << 10};
// Up to here one window in which everybody sums everything is as good.
constexpr std::int64_t kSmall = 12 << 10;

// Each rank has one, two cache lines apart from the others.
struct alignas(128) Counters {
  std::atomic<std::uint64_t> filled;
  alignas(128) std::atomic<std::uint64_t> summed;
};

// After so many pauses a rank assumes that something else has the core of the one it waits for.
constexpr int kPatience = 20'000;

struct Range {
  std::int64_t begin;
  std::int64_t length;
};

class Floor final : public Contender {
 public:
  Floor(const Meeting& meeting, std::byte* memory, std::int64_t piece_bytes,
        std::shared_ptr<std::uint64_t> window)
      : Contender("floor-" + std::to_string(piece_bytes >> 10) + "K"),
        rank_(meeting.rank()),
        ranks_(meeting.ranks()),
        yields_(meeting.oversubscribed()),
        piece_(piece_bytes / kFloat),
        counters_(reinterpret_cast<Counters*>(memory)),
        slots_(reinterpret_cast<float*>(memory + sizeof(Counters) * kMostFloorRanks)),
        next_(std::move(window)),
        window_(*next_) {}

  void run(float* buffer, std::int64_t elements) override {
    if (elements * kFloat <= kSmall) {
      run_small(buffer, elements);
      return;
    }
    const std::int64_t window = piece_ * ranks_;
    const std::int64_t windows = (elements + window - 1) / window;
    Range previous{0, 0};
    for (std::int64_t w = 0; w < windows; ++w, ++window_) {
      // Windows differ by at most a line each, so that none of them is a crumb.
      const Range range = part({0, elements}, w, windows);
      fill(buffer, range);
      sum(buffer, range);
      if (w > 0) empty(buffer, previous, window_ - 1);
      previous = range;
    }
    empty(buffer, previous, window_ - 1);
  }

 private:
  // The i-th of `count` even parts, at whole lines.
  static Range part(Range whole, std::int64_t i, std::int64_t count) {
    const std::int64_t lines = (whole.length + kLineFloats - 1) / kLineFloats;
    const auto at = [&](std::int64_t index) {
      return std::min(lines * index / count * kLineFloats, whole.length);
    };
    return {whole.begin + at(i), at(i + 1) - at(i)};
  }
  // Where the piece of `owner` lies in the buffer of `rank`.
  [[nodiscard]] float* slot(int rank, std::uint64_t window, int owner) const {
    const std::int64_t buffer = 2 * rank + static_cast<std::int64_t>(window % 2);
    return slots_ + (buffer * ranks_ + owner) * piece_;
  }
  void wait(const std::atomic<std::uint64_t>& counter, std::uint64_t value) const {
    for (int looks = 0; counter.load(std::memory_order_acquire) < value; ++looks) {
      relax(yields_ || looks > kPatience);
    }
  }
  void run_small(float* buffer, std::int64_t elements) {
    std::memcpy(slot(rank_, window_, 0), buffer, static_cast<std::size_t>(elements * kFloat));
    counters_[rank_].filled.store(window_ + 1, std::memory_order_release);
    std::array<const float*, kMostFloorRanks> sources{};
    for (int rank = 0; rank < ranks_; ++rank) {
      if (rank != rank_) wait(counters_[rank].filled, window_ + 1);
      sources[static_cast<std::size_t>(rank)] = slot(rank, window_, 0);
    }
    sources[static_cast<std::size_t>(rank_)] = buffer;
    sum_into(buffer, sources.data(), ranks_, elements);
    ++window_;
  }
  void fill(const float* buffer, Range range) {
    for (int owner = 0; owner < ranks_; ++owner) {
      if (owner == rank_) continue;
      const Range piece = part(range, owner, ranks_);
      copy(slot(rank_, window_, owner), buffer + piece.begin, piece.length);
    }
    counters_[rank_].filled.store(window_ + 1, std::memory_order_release);
  }
  void sum(float* buffer, Range range) {
    const Range mine = part(range, rank_, ranks_);
    std::array<float*, kMostFloorRanks> vectors{};
    for (int rank = 0; rank < ranks_; ++rank) {
      if (rank != rank_) wait(counters_[rank].filled, window_ + 1);
      vectors[static_cast<std::size_t>(rank)] =
          rank == rank_ ? buffer + mine.begin : slot(rank, window_, rank_);
    }
    sum_over_all(vectors.data(), ranks_, mine.length, buffer + mine.begin);
    counters_[rank_].summed.store(window_ + 1, std::memory_order_release);
  }
  void empty(float* buffer, Range range, std::uint64_t window) {
    for (int owner = 0; owner < ranks_; ++owner) {
      if (owner == rank_) continue;
      wait(counters_[owner].summed, window + 1);
      const Range piece = part(range, owner, ranks_);
      copy(buffer + piece.begin, slot(rank_, window, owner), piece.length);
    }
  }

  const int rank_;
  const int ranks_;
  const bool yields_;
  const std::int64_t piece_;  // elements
  Counters* const counters_;
  float* const slots_;
  // Shared by the floors of a rank, since they share the counters.
  const std::shared_ptr<std::uint64_t> next_;
  std::uint64_t& window_;
};

class Memcpy final : public Contender {
 public:
  explicit Memcpy(std::int64_t most_bytes)
      : Contender("memcpy"), target_(static_cast<std::size_t>(most_bytes) + kStagger) {}
  [[nodiscard]] bool reduces() const override { return false; }
  void run(float* buffer, std::int64_t elements) override {
    std::memcpy(to(), buffer, static_cast<std::size_t>(elements * kFloat));
  }
  [[nodiscard]] const float* result(const float* /*buffer*/) const override {
    return reinterpret_cast<const float*>(to());
  }

 private:
  // It begins elsewhere in a page than what is copied: a processor takes a load that follows a
  // store with the same lower 12 bits of the address for dependent on it.
  static constexpr std::size_t kStagger = 17 * 64;

  [[nodiscard]] std::byte* to() const { return target_.data() + kStagger; }

  UserMemory target_;
};

}  // namespace

std::size_t floor_bytes(int ranks) {
  const auto r = static_cast<std::size_t>(ranks);
  return sizeof(Counters) * kMostFloorRanks + r * 2 * r * static_cast<std::size_t>(kPieces.back());
}

void add_floor(Contenders& contenders, const Meeting& meeting, std::byte* memory) {
  const auto window = std::make_shared<std::uint64_t>(0);
  for (const std::int64_t piece : kPieces) {
    contenders.push_back(std::make_unique<Floor>(meeting, memory, piece, window));
  }
}

void add_memcpy(Contenders& contenders, std::int64_t most_bytes) {
  contenders.push_back(std::make_unique<Memcpy>(most_bytes));
}

}  // namespace ronde::bench
