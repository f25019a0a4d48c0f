// SPDX-License-Identifier: Apache-2.0
// One window of row counts, and then windows with a piece of every pair's block.
#include "collectives/in_host/all_to_all.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/numbers.h"
#include "collectives/kernels/copy.h"

namespace ronde::collectives {

namespace {

using base::Result;

// Bytes [begin, begin + length) of a block.
struct Part {
  std::int64_t begin = 0;
  std::int64_t length = 0;
};

class InHostAllToAll final : public Collective {
 public:
  InHostAllToAll(Slots& slots, RowsToSend send, AllocateRows allocate, const SlotTuning& tuning)
      : slots_(slots),
        send_(std::move(send)),
        allocate_(std::move(allocate)),
        piece_bytes_(std::min(tuning.piece_bytes, slots.buffer_bytes() / slots.ranks()) / kLine *
                     kLine),
        store_(tuning.store),
        first_(slots.next_window()) {
    base::check(std::cmp_equal(send_.rows.size(), slots.ranks()),
                "in_host_all_to_all: a number of rows for each rank");
    slots.use_windows(1);
  }

  Result<StepResult> step() override {
    if (!counts_known_) return exchange_counts();
    if (window_ == windows_) return StepResult::kDone;
    if (!filled_) {
      if (!slots_.may_fill(number())) return StepResult::kIdle;
      fill();
      return StepResult::kProgress;
    }
    // Each rank begins with the next one, so that not all of them read the same slots at once.
    if (taken_ < slots_.ranks()) {
      const std::int32_t from = (slots_.rank() + taken_) % slots_.ranks();
      if (!slots_.filled(from, number())) return StepResult::kIdle;
      take(from);
      ++taken_;
      return StepResult::kProgress;
    }
    slots_.post_done(number());
    filled_ = false;
    ++window_;
    return window_ == windows_ ? StepResult::kDone : StepResult::kProgress;
  }

 private:
  static constexpr std::int64_t kLine = 64;

  Result<StepResult> exchange_counts() {
    const std::int32_t me = slots_.rank();
    if (!filled_) {
      if (!slots_.may_fill(first_)) return StepResult::kIdle;
      std::memcpy(slots_.buffer(me, first_), send_.rows.data(),
                  send_.rows.size() * sizeof(std::int64_t));
      slots_.post_filled(first_);
      filled_ = true;
    }
    if (!slots_.all_filled(first_)) return StepResult::kIdle;
    const Result<std::span<std::byte>> output = read_counts();
    slots_.post_done(first_);
    RONDE_RETURN_IF_ERROR(output.status());
    output_ = *output;
    filled_ = false;
    counts_known_ = true;
    slots_.use_windows(static_cast<std::uint64_t>(windows_));
    copy_own();
    return windows_ == 0 ? StepResult::kDone : StepResult::kProgress;
  }

  // Reads all ranks' numbers of rows: what this rank receives, and the longest block of any pair,
  // which decides how many windows follow. Returns the output.
  Result<std::span<std::byte>> read_counts() {
    const auto ranks = static_cast<std::size_t>(slots_.ranks());
    std::vector<std::int64_t> theirs(ranks);
    std::vector<std::int64_t> received(ranks);
    std::int64_t longest = 0;
    std::int64_t total = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::memcpy(theirs.data(), slots_.buffer(base::narrow<std::int32_t>(rank), first_),
                  ranks * sizeof(std::int64_t));
      received[rank] = theirs[static_cast<std::size_t>(slots_.rank())];
      receive_begin_.push_back(total);
      receive_bytes_.push_back(received[rank] * send_.row_bytes.value());
      total += receive_bytes_.back();
      for (std::size_t to = 0; to < ranks; ++to) {
        if (to != rank) longest = std::max(longest, theirs[to]);
      }
    }
    windows_ = base::ceil_div(longest * send_.row_bytes.value(), piece_bytes_);
    std::int64_t at = 0;
    for (const std::int64_t rows : send_.rows) {
      send_begin_.push_back(at);
      at += rows * send_.row_bytes.value();
    }
    Result<std::span<std::byte>> output = allocate_(received);
    base::check(!output.ok() || std::ssize(*output) == total,
                "in_host_all_to_all: memory for exactly the rows that come");
    return output;
  }

  void copy_own() {
    const auto me = static_cast<std::size_t>(slots_.rank());
    if (receive_bytes_[me] == 0) return;
    copy_bytes(output_.data() + receive_begin_[me], send_.input + send_begin_[me],
               receive_bytes_[me], StoreKind::kTemporal);
  }

  [[nodiscard]] Part part(std::int64_t block_bytes) const {
    const std::int64_t begin = std::min(window_ * piece_bytes_, block_bytes);
    return {begin, std::min(piece_bytes_, block_bytes - begin)};
  }
  [[nodiscard]] std::uint64_t number() const {
    return first_ + 1 + static_cast<std::uint64_t>(window_);
  }

  void fill() {
    const std::int32_t me = slots_.rank();
    for (std::int32_t to = 0; to < slots_.ranks(); ++to) {
      const auto index = static_cast<std::size_t>(to);
      const Part now = part(send_.rows[index] * send_.row_bytes.value());
      if (to == me || now.length == 0) continue;
      copy_bytes(slots_.buffer(me, number()) + to * piece_bytes_,
                 send_.input + send_begin_[index] + now.begin, now.length, store_);
    }
    slots_.post_filled(number());
    filled_ = true;
    taken_ = 1;
  }

  void take(std::int32_t from) {
    const auto index = static_cast<std::size_t>(from);
    const Part now = part(receive_bytes_[index]);
    if (now.length == 0) return;
    copy_bytes(output_.data() + receive_begin_[index] + now.begin,
               slots_.buffer(from, number()) + slots_.rank() * piece_bytes_, now.length,
               StoreKind::kTemporal);
  }

  Slots& slots_;
  const RowsToSend send_;
  const AllocateRows allocate_;
  const std::int64_t piece_bytes_;
  const StoreKind store_;
  const std::uint64_t first_;

  bool counts_known_ = false;
  std::int64_t windows_ = 0;
  std::vector<std::int64_t> send_begin_;  // bytes, by destination
  std::vector<std::int64_t> receive_begin_;
  std::vector<std::int64_t> receive_bytes_;
  std::span<std::byte> output_;

  std::int64_t window_ = 0;
  bool filled_ = false;
  std::int32_t taken_ = 0;
};

}  // namespace

std::unique_ptr<Collective> in_host_all_to_all(Slots& slots, RowsToSend send, AllocateRows allocate,
                                               const SlotTuning& tuning) {
  return std::make_unique<InHostAllToAll>(slots, std::move(send), std::move(allocate), tuning);
}

}  // namespace ronde::collectives
