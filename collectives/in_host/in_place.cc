// SPDX-License-Identifier: Apache-2.0
// The collectives in place, which check the places that other ranks publish before they use them.
#include "collectives/in_host/in_place.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/numbers.h"
#include "collectives/board/arena.h"
#include "collectives/in_host/reduction.h"
#include "collectives/kernels/copy.h"
#include "collectives/kernels/window_plan.h"

namespace ronde::collectives {

namespace {

using base::Code;
using base::Result;
using base::Status;

// A rank publishes one of these in its buffer for each of its tensors.
using Place = std::uint64_t;  // bytes from the beginning of its arena

// A step sums or copies at most this many bytes, so that the agent can do other work in between.
constexpr std::int64_t kStepBytes = 1 << 20;

// Returns a rank's part of a vector, by the arithmetic of one large window.
ElementRange part_of(std::int64_t elements, std::int64_t element_bytes, const Slots& slots) {
  if (elements == 0) return {};
  constexpr std::int64_t kLine = 64;
  const std::int64_t lines = base::ceil_div(elements, kLine / element_bytes);
  const std::int64_t piece_bytes = base::ceil_div(lines, std::int64_t{slots.ranks()}) * kLine;
  return WindowPlan(elements, element_bytes, slots.ranks(), piece_bytes).piece(0, slots.rank());
}

// What all of them have in common: who may touch which memory, and when.
class InPlace : public Collective {
 public:
  Result<StepResult> step() final {
    switch (phase_) {
      case Phase::kPublish:
        if (!slots_.may_fill(window_)) return StepResult::kIdle;
        RONDE_RETURN_IF_ERROR(publish_places());
        slots_.post_filled(window_);
        phase_ = Phase::kFind;
        return StepResult::kProgress;
      case Phase::kFind:
        if (!slots_.all_filled(window_)) return StepResult::kIdle;
        RONDE_RETURN_IF_ERROR(find_tensors());
        phase_ = Phase::kMove;
        [[fallthrough]];
      case Phase::kMove:
        if (move_some()) return StepResult::kProgress;
        slots_.post_done(window_);
        phase_ = Phase::kWait;
        [[fallthrough]];
      case Phase::kWait:
        return slots_.all_done(window_) ? StepResult::kDone : StepResult::kIdle;
    }
    return StepResult::kIdle;
  }

 protected:
  explicit InPlace(Slots& slots) : slots_(slots), window_(slots.next_window()) {
    slots.use_windows(1);
  }

  // What this rank lets the others touch.
  void lend(const std::byte* memory, base::Bytes bytes) { lent_.push_back({memory, bytes}); }
  // How much a rank lends of a tensor: as much as this one, unless somebody knows better.
  [[nodiscard]] virtual base::Bytes lent_by(std::int32_t /*rank*/, std::size_t tensor) const {
    return lent_[tensor].bytes;
  }
  [[nodiscard]] Slots& slots() const { return slots_; }
  // Where what a rank has lent lies, once all have said so.
  [[nodiscard]] std::byte* lent(std::int32_t rank, std::size_t tensor) const {
    return found_[static_cast<std::size_t>(rank) * lent_.size() + tensor];
  }

  // Does the next part of this rank's work; false: that was all.
  virtual bool move_some() = 0;

 private:
  enum class Phase : std::uint8_t { kPublish, kFind, kMove, kWait };
  struct Lent {
    const std::byte* memory;  // this rank's
    base::Bytes bytes;
  };

  Status publish_places() {
    const std::int32_t me = slots_.rank();
    const std::span<std::byte> arena = slots_.board().arena(me);
    std::byte* to = slots_.buffer(me, window_);
    for (const Lent& tensor : lent_) {
      const bool empty = tensor.bytes.value() == 0;  // then it lies nowhere
      if (!empty && !lies_in(arena, tensor.memory, tensor.bytes.size())) {
        return Status::error(Code::kInternal,
                             "what others are to use where it lies does not lie in the arena of "
                             "rank " +
                                 std::to_string(me));
      }
      const auto place = empty ? Place{0} : static_cast<Place>(tensor.memory - arena.data());
      std::memcpy(to, &place, sizeof(place));
      to += sizeof(place);
    }
    return {};
  }

  // Finds the tensors of all ranks. A place outside the arena is an error, and is not read.
  Status find_tensors() {
    for (std::int32_t rank = 0; rank < slots_.ranks(); ++rank) {
      const std::span<std::byte> arena = slots_.board().arena(rank);
      const std::byte* from = slots_.buffer(rank, window_);
      for (std::size_t tensor = 0; tensor < lent_.size(); ++tensor) {
        Place place = 0;
        std::memcpy(&place, from, sizeof(place));
        from += sizeof(place);
        if (place > arena.size() || lent_by(rank, tensor).size() > arena.size() - place) {
          return Status::error(Code::kInternal, "rank " + std::to_string(rank) +
                                                    " published a place outside its arena")
              .with_rank(rank);
        }
        found_.push_back(arena.data() + place);
      }
    }
    return {};
  }

  Slots& slots_;
  const std::uint64_t window_;
  std::vector<Lent> lent_;
  Phase phase_ = Phase::kPublish;
  std::vector<std::byte*> found_;  // by rank, then by tensor
};

// The arithmetic of those that sum.
class InPlaceSums : public InPlace {
 protected:
  InPlaceSums(Slots& slots, const Reduction& reduction)
      : InPlace(slots),
        element_bytes_(base::size_of(reduction.dtype)),
        kernels_(kernels_for(reduction.dtype, reduction.op)),
        prescales_(reduction.prescales),
        scaling_(with_prescales(scaling_of(reduction, slots.ranks()), prescales_)),
        sources_(static_cast<std::size_t>(slots.ranks())),
        destinations_(sources_.size()) {}

  [[nodiscard]] std::int64_t element_bytes() const { return element_bytes_; }
  [[nodiscard]] std::int64_t elements_of_step() const { return kStepBytes / element_bytes_; }

  // Sums elements of all ranks' tensors from `offset` bytes on, into `own`, or without it into
  // those of all ranks.
  void sum(std::size_t tensor, std::int64_t offset, std::int64_t elements, std::byte* own) {
    const std::size_t ranks = sources_.size();
    const std::size_t next = (static_cast<std::size_t>(slots().rank()) + 1) % ranks;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::byte* const memory = lent(static_cast<std::int32_t>(rank), tensor) + offset;
      sources_[rank] = memory;
      // The kernel asks ahead for its first destination: that is to be another core's memory,
      // which takes longest to come.
      destinations_[(rank + ranks - next) % ranks] = memory;
    }
    if (own != nullptr) destinations_[0] = own;
    kernels_.of_host(sources_, {destinations_.data(), own == nullptr ? destinations_.size() : 1},
                     elements, scaling_);
  }

 private:
  const std::int64_t element_bytes_;
  const ReduceKernels& kernels_;
  const std::vector<double> prescales_;  // by rank, where they differ
  const Scaling scaling_;
  // Scratch memory of sum(), by rank.
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> destinations_;
};

class InPlaceAllreduce final : public InPlaceSums {
 public:
  InPlaceAllreduce(Slots& slots, const std::vector<base::TensorView>& tensors,
                   const Reduction& reduction)
      : InPlaceSums(slots, reduction) {
    std::int64_t elements = 0;
    for (const base::TensorView& view : tensors) {
      if (view.elements.value() == 0) continue;
      base::check(view.input == view.output, "a tensor that is reduced in place has no input");
      tensors_.push_back({elements, view.elements.value()});
      elements += view.elements.value();
      lend(view.output, view.bytes());
    }
    part_ = part_of(elements, element_bytes(), slots);
    next_ = part_.begin;
  }

 private:
  struct Tensor {
    std::int64_t begin;  // in the vector
    std::int64_t elements;

    [[nodiscard]] std::int64_t end() const { return begin + elements; }
  };

  // Sums the next lines of this rank's part.
  bool move_some() override {
    const std::int64_t limit = std::min(part_.end, next_ + elements_of_step());
    while (next_ < limit) {
      while (tensors_[tensor_].end() <= next_) ++tensor_;
      const Tensor& tensor = tensors_[tensor_];
      const std::int64_t end = std::min(limit, tensor.end());
      sum(tensor_, (next_ - tensor.begin) * element_bytes(), end - next_, nullptr);
      next_ = end;
    }
    return next_ < part_.end;
  }

  std::vector<Tensor> tensors_;  // those that are not empty
  ElementRange part_;            // this rank's, of the vector
  std::int64_t next_ = 0;        // the first element that is not summed yet
  std::size_t tensor_ = 0;       // the tensor of next_, or one before it
};

class InPlaceReduceScatter final : public InPlaceSums {
 public:
  InPlaceReduceScatter(Slots& slots, const std::vector<base::TensorView>& blocks,
                       const Reduction& reduction)
      : InPlaceSums(slots, reduction), own_(blocks[static_cast<std::size_t>(slots.rank())]) {
    base::Bytes bytes;
    for (const base::TensorView& block : blocks) bytes += block.bytes();
    const std::byte* const begin = blocks.front().input;
    if (own_.elements.value() > 0) before_ = own_.input - begin;
    lend(begin, bytes);
  }

 private:
  bool move_some() override {
    const std::int64_t elements = std::min(own_.elements.value() - next_, elements_of_step());
    if (elements > 0) {
      const std::int64_t offset = next_ * element_bytes();
      sum(0, before_ + offset, elements, own_.output + offset);
      next_ += elements;
    }
    return next_ < own_.elements.value();
  }

  const base::TensorView own_;  // the block of this rank
  std::int64_t before_ = 0;     // bytes of the blocks before it
  std::int64_t next_ = 0;       // its first element that is not summed yet
};

class InPlaceAllgather final : public InPlace {
 public:
  InPlaceAllgather(Slots& slots, std::vector<base::TensorView> blocks)
      : InPlace(slots), blocks_(std::move(blocks)) {
    const base::TensorView& own = blocks_[static_cast<std::size_t>(slots.rank())];
    lend(own.input, own.bytes());
  }

 private:
  [[nodiscard]] base::Bytes lent_by(std::int32_t rank, std::size_t /*tensor*/) const override {
    return blocks_[static_cast<std::size_t>(rank)].bytes();
  }
  // Each rank begins with its own block and then takes that of the next one, so that not all of
  // them read the same memory at once.
  bool move_some() override {
    const std::int32_t ranks = slots().ranks();
    const std::int32_t from = (slots().rank() + taken_) % ranks;
    const base::TensorView& block = blocks_[static_cast<std::size_t>(from)];
    const std::int64_t all = block.bytes().value();
    const std::int64_t bytes = std::min(all - next_, kStepBytes);
    const std::byte* const source = lent(from, 0);
    if (source == block.output) {
      next_ = all;
    } else if (bytes > 0) {
      copy_bytes(block.output + next_, source + next_, bytes, StoreKind::kTemporal);
      next_ += bytes;
    }
    if (next_ == all) {
      next_ = 0;
      ++taken_;
    }
    return taken_ < ranks;
  }

  const std::vector<base::TensorView> blocks_;
  std::int32_t taken_ = 0;  // blocks that are here
  std::int64_t next_ = 0;   // the first byte of the next one that is not
};

}  // namespace

bool fits_in_place(const Slots& slots, std::size_t tensors) {
  return tensors <= static_cast<std::size_t>(slots.buffer_bytes()) / sizeof(Place);
}

std::unique_ptr<Collective> in_host_allreduce_in_place(Slots& slots,
                                                       const std::vector<base::TensorView>& tensors,
                                                       const Reduction& reduction) {
  base::check(fits_in_place(slots, tensors.size()), "the places of the tensors fit a slot buffer");
  return std::make_unique<InPlaceAllreduce>(slots, tensors, reduction);
}

std::unique_ptr<Collective> in_host_reduce_scatter_in_place(
    Slots& slots, const std::vector<base::TensorView>& blocks, const Reduction& reduction) {
  return std::make_unique<InPlaceReduceScatter>(slots, blocks, reduction);
}

std::unique_ptr<Collective> in_host_allgather_in_place(Slots& slots,
                                                       std::vector<base::TensorView> blocks) {
  return std::make_unique<InPlaceAllgather>(slots, std::move(blocks));
}

}  // namespace ronde::collectives
