// SPDX-License-Identifier: Apache-2.0
// A rank that runs a scenario (scenario.h), which a test steps in one thread, in threads or in
// processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "collectives/in_host/all_to_all.h"
#include "collectives/in_host/allreduce.h"
#include "collectives/in_host/moves.h"
#include "collectives/in_host/reduce_scatter.h"
#include "collectives/in_host/slots.h"
#include "collectives/kernels/floating_point_mode.h"
#include "test/unit/collectives/in_host/scenario.h"

namespace ronde::collectives {

// One rank that runs a scenario. Thread safety: one thread at a time.
class RankOfScenario {
 public:
  // The scenario must outlive this object. With `poison`, buffers are overwritten as soon as no
  // rank may read them any more.
  RankOfScenario(Board board, const Scenario& scenario, bool poison)
      : slots_(std::move(board)), scenario_(scenario), poison_(poison) {}

  [[nodiscard]] Slots& slots() { return slots_; }
  [[nodiscard]] bool finished() const { return next_ == scenario_.size() && !current_; }
  // The first problem, or an empty text. A rank with a problem is not stepped again.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  // The rank's progress, for a message about ranks that are stuck.
  [[nodiscard]] std::string text() const {
    return "rank " + std::to_string(slots_.rank()) +
           (finished() ? " has finished" : " in " + std::to_string(next_) + ": " + now().text());
  }

  // Steps the current collective; makes the next one and checks the last. Returns true if there was
  // something to do.
  bool step() {
    if (finished() || !problem_.empty()) return false;
    const ScopedFloatingPointMode mode;
    if (current_ == nullptr) make();
    const base::Result<StepResult> result = current_->step();
    if (!result.ok()) {
      problem_ = text() + ": " + result.status().to_string();
      return true;
    }
    if (*result == StepResult::kDone) end();
    return *result != StepResult::kIdle;
  }

 private:
  [[nodiscard]] const InHostOp& now() const { return scenario_[next_]; }
  [[nodiscard]] std::size_t index() const { return static_cast<std::size_t>(slots_.rank()); }

  // No rank may read a buffer from the moment when all are done with its last window until it is
  // filled again; between two collectives this rank needs none of its own.
  void poison() {
    for (std::uint64_t window = slots_.next_window(); window < slots_.next_window() + kSlotBuffers;
         ++window) {
      if (!slots_.may_fill(window)) continue;
      std::memset(slots_.buffer(slots_.rank(), window), 0xA5,
                  static_cast<std::size_t>(slots_.buffer_bytes()));
      std::memset(slots_.inline_bytes(slots_.rank(), window), 0xA5, Slots::kInlineBytes);
    }
  }

  void make() {
    if (poison_) poison();
    const InHostOp& op = now();
    inputs_ = op.inputs[index()];
    outputs_.clear();
    for (const Memory& one : op.expected[index()]) {
      outputs_.emplace_back(one.size(), std::byte{0x5A});
    }
    switch (op.kind) {
      case Kind::kAllreduce:
        current_ = in_host_allreduce(slots_, fusion::FusedView(tensors(op.in_place), 1), op.what,
                                     op.tuning);
        break;
      case Kind::kReduceScatter:
        current_ = in_host_reduce_scatter(
            slots_, fusion::FusedView::of_chunks(op.what.dtype, reduced_blocks()), op.what,
            op.tuning);
        break;
      case Kind::kBroadcast:
        current_ = in_host_broadcast(slots_, fusion::FusedView(tensors(op.in_place), 1), op.root,
                                     op.tuning);
        break;
      case Kind::kAllgather:
        current_ = in_host_allgather(
            slots_, fusion::FusedView::of_chunks(op.what.dtype, gathered_blocks()), op.tuning);
        break;
      case Kind::kAllToAll:
        current_ = make_all_to_all(op);
        break;
      case Kind::kBarrier:
        current_ = in_host_barrier(slots_);
        break;
    }
  }

  [[nodiscard]] base::TensorView view(const Memory* input, Memory* output) const {
    const std::size_t bytes = output == nullptr ? input->size() : output->size();
    return {input == nullptr ? nullptr : input->data(),
            output == nullptr ? nullptr : output->data(),
            base::Elements(static_cast<std::int64_t>(bytes) / base::size_of(now().what.dtype)),
            now().what.dtype};
  }
  [[nodiscard]] std::vector<base::TensorView> tensors(bool in_place) {
    std::vector<base::TensorView> views;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (in_place) outputs_[i] = inputs_[i];
      views.push_back(view(in_place ? &outputs_[i] : &inputs_[i], &outputs_[i]));
    }
    return views;
  }
  [[nodiscard]] std::vector<base::TensorView> reduced_blocks() {
    std::vector<base::TensorView> views;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      views.push_back(view(&inputs_[i], nullptr));
      if (i == index()) views.back().output = outputs_[0].data();
    }
    return views;
  }
  [[nodiscard]] std::vector<base::TensorView> gathered_blocks() {
    std::vector<base::TensorView> views;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      views.push_back(view(i == index() ? inputs_.data() : nullptr, &outputs_[i]));
    }
    return views;
  }
  [[nodiscard]] std::unique_ptr<Collective> make_all_to_all(const InHostOp& op) {
    return in_host_all_to_all(
        slots_, {inputs_[0].data(), op.rows[index()], base::Bytes(op.row_bytes)},
        [this, &op](std::span<const std::int64_t> received) -> base::Result<std::span<std::byte>> {
          for (std::size_t from = 0; from < received.size(); ++from) {
            if (received[from] != op.rows[from][index()]) problem_ = text() + ": wrong rows";
          }
          return std::span(outputs_[0]);
        },
        op.tuning);
  }

  void end() {
    const InHostOp& op = now();
    current_.reset();
    const bool reduces = op.kind == Kind::kAllreduce || op.kind == Kind::kReduceScatter;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const Memory& expected = op.expected[index()][i];
      // A computed NaN may be any NaN; results that are only moved are compared as bytes.
      const base::DType dtype = reduces ? op.what.dtype : base::DType::kU8;
      const std::int64_t wrong = oracle::first_difference(dtype, outputs_[i], expected);
      if (wrong < 0) continue;
      problem_ = text() + ": tensor " + std::to_string(i) + ", element " + std::to_string(wrong);
    }
    if (!op.in_place || !(op.kind == Kind::kAllreduce || op.kind == Kind::kBroadcast)) {
      if (inputs_ != op.inputs[index()]) problem_ = text() + ": an input has changed";
    }
    // The memory is the user's again, and is freed: a rank that still touches it is caught.
    inputs_ = {};
    outputs_ = {};
    if (problem_.empty()) ++next_;
  }

  Slots slots_;
  const Scenario& scenario_;
  const bool poison_;
  Memories inputs_;
  Memories outputs_;
  std::unique_ptr<Collective> current_;
  std::size_t next_ = 0;  // the collective that runs, or runs next
  std::string problem_;
};

}  // namespace ronde::collectives
