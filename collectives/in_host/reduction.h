// SPDX-License-Identifier: Apache-2.0
// The base of a host's reductions: the vector, and the sum over all ranks' slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "collectives/in_host/slots.h"
#include "collectives/kernels/reduce.h"
#include "collectives/kernels/window_plan.h"
#include "collectives/kernels/wire_copy.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// The scaling with a prescale for each rank; an empty vector leaves it as it is.
[[nodiscard]] inline Scaling with_prescales(Scaling scaling, const std::vector<double>& prescales) {
  if (!prescales.empty()) scaling.prescales = prescales.data();
  return scaling;
}

// The user owns the memory behind the view, which must stay until the collective is destroyed.
//
// Thread safety: one thread at a time (whoever has the agent's role).
class InHostReduction {
 public:
  InHostReduction(Slots& slots, fusion::FusedView view, const Reduction& reduction)
      : slots_(slots),
        view_(std::move(view)),
        wire_(base::wire_dtype(view_.dtype(), reduction.compression)),
        copy_(view_, wire_),
        kernels_(kernels_for(wire_, reduction.op)),
        prescales_(reduction.prescales),
        scaling_(with_prescales(scaling_of(reduction, slots.ranks()), prescales_)),
        sources_(static_cast<std::size_t>(slots.ranks())),
        destinations_(static_cast<std::size_t>(slots.ranks())) {}
  InHostReduction(const InHostReduction&) = delete;
  InHostReduction& operator=(const InHostReduction&) = delete;

 protected:
  ~InHostReduction() = default;

  [[nodiscard]] Slots& slots() const { return slots_; }
  [[nodiscard]] const WireCopy& copy() const { return copy_; }

  // Calls f(owner) for each piece that this rank copies into its slots: all but its own, and its
  // own too where the slots hold another dtype than the tensors.
  template <class F>
  void for_each_piece_in_slots(F&& f) const {
    for (std::int32_t owner = 0; owner < slots_.ranks(); ++owner) {
      if (owner != slots_.rank() || copy_.compresses()) f(owner);
    }
  }

  // Sums `range` of a chunk over all ranks; contribution(r) returns the place of rank r's copy.
  // This rank's own contribution is read from its tensors, and the sum goes to its outputs; with
  // `store_back` also over the contributions of the others. A compressed tensor is summed in the
  // slots, this rank's own contribution too: with `store_back` the sum goes over all contributions
  // and no further.
  template <class F>
  void sum(int chunk, const ElementRange& range, bool store_back, F&& contribution) {
    if (copy_.compresses()) {
      sum_in_slots(range, store_back, contribution);
      if (!store_back) copy_.out(chunk, range, contribution(slots_.rank()));
      return;
    }
    const std::int32_t me = slots_.rank();
    copy_.for_each_fragment(
        chunk, range,
        [&](const std::byte* input, std::byte* output, std::int64_t elements, std::int64_t before) {
          std::size_t targets = 0;
          destinations_[targets++] = output;
          for (std::int32_t rank = 0; rank < slots_.ranks(); ++rank) {
            const auto index = static_cast<std::size_t>(rank);
            if (rank == me) {
              sources_[index] = input;
              continue;
            }
            std::byte* const slot = contribution(rank) + before;
            sources_[index] = slot;
            if (store_back) destinations_[targets++] = slot;
          }
          kernels_.of_host(sources_, {destinations_.data(), targets}, elements, scaling_);
        });
  }

 private:
  template <class F>
  void sum_in_slots(const ElementRange& range, bool store_back, F&& contribution) {
    if (range.length() == 0) return;
    for (std::int32_t rank = 0; rank < slots_.ranks(); ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      destinations_[index] = contribution(rank);
      sources_[index] = destinations_[index];
    }
    if (!store_back) destinations_[0] = contribution(slots_.rank());
    kernels_.of_host(sources_, {destinations_.data(), store_back ? destinations_.size() : 1},
                     range.length(), scaling_);
  }

  Slots& slots_;
  const fusion::FusedView view_;
  const base::DType wire_;
  const WireCopy copy_;
  const ReduceKernels& kernels_;
  const std::vector<double> prescales_;  // by rank, where they differ
  const Scaling scaling_;
  // Scratch memory of sum(), by rank.
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> destinations_;
};

}  // namespace ronde::collectives
