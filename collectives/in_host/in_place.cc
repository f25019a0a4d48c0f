// SPDX-License-Identifier: Apache-2.0
// The allreduce in place, which checks the places that other ranks publish before it uses them.
#include "collectives/in_host/in_place.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/numbers.h"
#include "collectives/board/arena.h"
#include "collectives/in_host/reduction.h"
#include "collectives/kernels/window_plan.h"

namespace ronde::collectives {

namespace {

using base::Code;
using base::Result;
using base::Status;

// A rank publishes one of these in its buffer for each of its tensors.
using Place = std::uint64_t;  // bytes from the beginning of its arena

// A step sums at most this many bytes, so that the agent can do other work in between.
constexpr std::int64_t kStepBytes = 1 << 20;

// Returns a rank's part of a vector, by the arithmetic of one large window.
ElementRange part_of(std::int64_t elements, std::int64_t element_bytes, const Slots& slots) {
  if (elements == 0) return {};
  constexpr std::int64_t kLine = 64;
  const std::int64_t lines = base::ceil_div(elements, kLine / element_bytes);
  const std::int64_t piece_bytes = base::ceil_div(lines, std::int64_t{slots.ranks()}) * kLine;
  return WindowPlan(elements, element_bytes, slots.ranks(), piece_bytes).piece(0, slots.rank());
}

class InPlaceAllreduce final : public Collective {
 public:
  InPlaceAllreduce(Slots& slots, const std::vector<base::TensorView>& tensors,
                   const Reduction& reduction)
      : slots_(slots),
        element_bytes_(base::size_of(reduction.dtype)),
        kernels_(kernels_for(reduction.dtype, reduction.op)),
        prescales_(reduction.prescales),
        scaling_(with_prescales(scaling_of(reduction, slots.ranks()), prescales_)),
        window_(slots.next_window()),
        sources_(static_cast<std::size_t>(slots.ranks())),
        destinations_(static_cast<std::size_t>(slots.ranks())) {
    slots.use_windows(1);
    std::int64_t elements = 0;
    for (const base::TensorView& view : tensors) {
      if (view.elements.value() == 0) continue;
      base::check(view.input == view.output, "a tensor that is reduced in place has no input");
      tensors_.push_back({view.output, elements, view.elements.value()});
      elements += view.elements.value();
    }
    part_ = part_of(elements, element_bytes_, slots);
    next_ = part_.begin;
  }

  Result<StepResult> step() override {
    switch (phase_) {
      case Phase::kPublish:
        if (!slots_.may_fill(window_)) return StepResult::kIdle;
        RONDE_RETURN_IF_ERROR(publish_places());
        slots_.post_filled(window_);
        phase_ = Phase::kFindTensors;
        return StepResult::kProgress;
      case Phase::kFindTensors:
        if (!slots_.all_filled(window_)) return StepResult::kIdle;
        RONDE_RETURN_IF_ERROR(find_tensors());
        phase_ = Phase::kSum;
        [[fallthrough]];
      case Phase::kSum:
        sum_some();
        if (next_ < part_.end) return StepResult::kProgress;
        slots_.post_done(window_);
        phase_ = Phase::kWait;
        [[fallthrough]];
      case Phase::kWait:
        return slots_.all_done(window_) ? StepResult::kDone : StepResult::kIdle;
    }
    return StepResult::kIdle;
  }

 private:
  enum class Phase : std::uint8_t { kPublish, kFindTensors, kSum, kWait };
  struct Tensor {
    std::byte* memory;   // this rank's
    std::int64_t begin;  // in the vector
    std::int64_t elements;

    [[nodiscard]] std::int64_t end() const { return begin + elements; }
  };

  [[nodiscard]] std::size_t bytes_of(const Tensor& tensor) const {
    return static_cast<std::size_t>(tensor.elements * element_bytes_);
  }

  Status publish_places() {
    const std::span<std::byte> arena = slots_.board().arena(slots_.rank());
    std::byte* to = slots_.buffer(slots_.rank(), window_);
    for (const Tensor& tensor : tensors_) {
      if (!lies_in(arena, tensor.memory, bytes_of(tensor))) {
        return Status::error(
            Code::kInternal,
            "a tensor that is reduced in place does not lie in the arena of rank " +
                std::to_string(slots_.rank()));
      }
      const auto place = static_cast<Place>(tensor.memory - arena.data());
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
      for (const Tensor& tensor : tensors_) {
        Place place = 0;
        std::memcpy(&place, from, sizeof(place));
        from += sizeof(place);
        if (place > arena.size() || bytes_of(tensor) > arena.size() - place) {
          return Status::error(Code::kInternal, "rank " + std::to_string(rank) +
                                                    " published a place outside its arena")
              .with_rank(rank);
        }
        contributions_.push_back(arena.data() + place);
      }
    }
    return {};
  }

  // Sums the next lines of this rank's part.
  void sum_some() {
    const std::int64_t limit = std::min(part_.end, next_ + kStepBytes / element_bytes_);
    while (next_ < limit) {
      while (tensors_[tensor_].end() <= next_) ++tensor_;
      const Tensor& tensor = tensors_[tensor_];
      const std::int64_t end = std::min(limit, tensor.end());
      const std::int64_t offset = (next_ - tensor.begin) * element_bytes_;
      for (std::size_t rank = 0; rank < sources_.size(); ++rank) {
        destinations_[rank] = contributions_[rank * tensors_.size() + tensor_] + offset;
        sources_[rank] = destinations_[rank];
      }
      kernels_.of_host(sources_, destinations_, end - next_, scaling_);
      next_ = end;
    }
  }

  Slots& slots_;
  const std::int64_t element_bytes_;
  const ReduceKernels& kernels_;
  const std::vector<double> prescales_;  // by rank, where they differ
  const Scaling scaling_;
  const std::uint64_t window_;
  std::vector<Tensor> tensors_;  // those that are not empty
  ElementRange part_;            // this rank's, of the vector
  Phase phase_ = Phase::kPublish;
  std::vector<std::byte*> contributions_;  // by rank, then by tensor
  std::int64_t next_ = 0;                  // the first element that is not summed yet
  std::size_t tensor_ = 0;                 // the tensor of next_, or one before it
  // Scratch memory of sum_some(), by rank.
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> destinations_;
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

}  // namespace ronde::collectives
