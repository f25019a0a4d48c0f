// SPDX-License-Identifier: Apache-2.0
// Averages the gradients of a module while backward goes on. Included by ronde/torch.hpp.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ronde/torch/tensors.hpp>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ronde::torch {

// How a GradientAverager goes about its work; the same on every rank but for `averager`.
// Thread safety: a value.
struct GradientOptions {
  Op op = average;
  AllreduceOptions reduction{};  // factors, compression, priority
  AveragerOptions averager{};    // how much is held back; what wait() does about what is missing
  int backward_passes = 1;       // so many add up before a gradient is averaged
};

namespace detail {

// Gradients lie side by side: on the board of the host, or, where that has no room, in plain
// memory.
class GradientMemoryPool {
 public:
  GradientMemoryPool(const Engine& engine, std::size_t bytes)
      : memory_(std::make_shared<Memory>(bytes, allocator<std::byte>(engine))),
        next_(memory_->data()) {}
  static std::size_t bytes_of(const at::Tensor& like) {
    return (like.nbytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  // The next part, all zero, with the layout that autograd gives the gradient of `like`. It keeps
  // the memory for as long as it lives.
  at::Tensor take(const at::Tensor& like) {
    void* const data = next_;
    next_ += bytes_of(like);
    const auto keep = [memory = memory_](void* /*data*/) {};
    if (like.is_non_overlapping_and_dense()) {
      return at::from_blob(data, like.sizes(), like.strides(), keep, like.options());
    }
    return at::from_blob(data, like.sizes(), keep, like.options());
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  using Memory = std::vector<std::byte, allocator<std::byte>>;

  std::shared_ptr<Memory> memory_;
  std::byte* next_;
};

// A parameter, and where its gradient is averaged.
struct AveragedParameter {
  // Puts the gradient where it is averaged, if it is not there already; zeros, if there is none.
  void bring_home() {
    const at::NoGradGuard no_graph;
    at::Tensor& gradient = parameter.mutable_grad();
    if (gradient.is_same(home)) return;
    if (gradient.defined() && gradient.layout() == at::kStrided) {
      home.copy_(gradient);
    } else {
      home.zero_();
      if (gradient.defined()) home.add_(gradient);  // sparse
    }
    gradient = home;
  }

  std::string name;
  at::Tensor parameter;
  at::Tensor home;
  ronde::GradientAverager::Id id = 0;
  int passes_left = 1;  // in this step
};

// What the hooks need, which outlives the averager where a graph does.
struct AveragerState {
  AveragerState(Engine& given_engine, const GradientOptions& given)
      : engine(given_engine),
        options(given),
        averager(engine, given.op, given.reduction, given.averager) {}

  // Backward has accumulated a gradient: any thread.
  void accumulated(AveragedParameter& one) {
    if (paused.load() > 0) return;
    if (one.passes_left == 0) {
      throw Error(RONDE_INVALID_ARGUMENT,
                  "the gradient of '" + one.name + "' was computed more than " +
                      std::to_string(options.backward_passes) +
                      " times before wait(), while it was being averaged: set "
                      "GradientOptions::backward_passes, or hold a no_sync() meanwhile",
                  "", -1);
    }
    if (one.parameter.grad().requires_grad()) {
      throw Error(RONDE_UNSUPPORTED,
                  "the gradient of '" + one.name +
                      "' has a graph of its own (create_graph), which "
                      "an average cannot keep",
                  "", -1);
    }
    if (--one.passes_left > 0) return;
    one.bring_home();
    averager.ready(one.id);
  }

  Engine& engine;
  GradientOptions options;
  std::atomic<int> paused{0};
  std::vector<AveragedParameter> parameters;  // hooks refer to it by index: wait() adds to it
  ronde::GradientAverager averager;
};

// Runs when torch has accumulated the gradient of one parameter.
class AccumulatedHook : public ::torch::autograd::FunctionPostHook {
 public:
  AccumulatedHook(std::weak_ptr<AveragerState> state, std::size_t index)
      : state_(std::move(state)), index_(index) {}

  ::torch::autograd::variable_list operator()(
      const ::torch::autograd::variable_list& outputs,
      const ::torch::autograd::variable_list& /*inputs*/) override {
    if (const auto state = state_.lock()) state->accumulated(state->parameters[index_]);
    return outputs;
  }

 private:
  std::weak_ptr<AveragerState> state_;
  std::size_t index_;
};

}  // namespace detail

// Averages the gradients of a module's parameters over the ranks of an engine. A gradient leaves
// when backward has it; wait() ends the step, and is called before the optimiser's step():
//
//   ronde::torch::GradientAverager averager(engine, model);
//   for (auto& batch : *loader) {
//     optimizer.zero_grad();
//     loss_of(batch).backward();
//     averager.wait();                      (here gradients may be clipped)
//     optimizer.step();
//   }
//
// Gradients lie in memory on the board (ronde::allocator), where an allreduce copies nothing. Where
// the trainer keeps them defined (zeroes them) torch accumulates them in place; where they become
// undefined (set_to_none), or are sparse or of another layout, they are copied there once, and
// `parameter.grad()` is that memory from then on. It stays valid as long as the gradient does.
//
// Every rank has the same module, and takes every step. A parameter is averaged, tied ones once,
// from the first step on at whose wait() it requires a gradient: it may be thawed later, in the
// same step on every rank. One without a gradient in a step gives zeros, and gets the average of
// the others, so that the optimisers stay alike.
//
// Ownership: engine and averager outlive the last wait(); the engine stays open until then.
//
// Errors: the constructor throws Error (RONDE_MISMATCH on every rank where the modules differ;
// RONDE_UNSUPPORTED for tensors that are not in host memory); backward() throws what a submission
// does, and RONDE_INVALID_ARGUMENT for more backward passes than were announced; wait() throws the
// codes of ronde::GradientAverager. Where an exception goes past the averager in the middle of a
// step its destructor fails what other ranks wait for, and nobody hangs.
//
// Thread safety: backward() in any thread, and torch's own; all else in one, while none runs.
class GradientAverager {
 public:
  // Registers the parameters and hooks them; gradients that are there keep their values. Every rank
  // makes it, with the same module.
  GradientAverager(Engine& engine, ::torch::nn::Module& module, const GradientOptions& options = {})
      : state_(std::make_shared<detail::AveragerState>(engine, options)),
        frozen_(detail::tensors_of(module, false)) {
    const std::vector<detail::NamedTensor> tensors = thawed();
    detail::require_the_same(engine, "GradientAverager", tensors);
    for (const detail::NamedTensor& one : frozen_) known_.insert(one.tensor.unsafeGetTensorImpl());
    add(tensors);
  }
  GradientAverager(const GradientAverager&) = delete;
  GradientAverager& operator=(const GradientAverager&) = delete;
  ~GradientAverager() {
    for (const Hooked& one : hooked_) one.node->del_post_hook(one.key);
  }

  // Averages a parameter that the module had not when this was made, under a name that no other
  // has; every rank adds it, in the same step. Does nothing for one that it knows.
  void add(const std::string& name, const at::Tensor& parameter) {
    if (known_.insert(parameter.unsafeGetTensorImpl()).second) frozen_.push_back({name, parameter});
  }

  // Before the backward of each step, in all of them or in none: the step has this number, as of
  // ronde::GradientAverager.
  void begin_step(std::uint64_t number) { state_->averager.begin_step(number); }

  // Before the backward of a step: from now on this rank's gradients have this weight in the
  // averages, as of ronde::GradientAverager.
  void weigh(double weight) { state_->averager.weigh(weight); }

  // This rank has no more batches, as of ronde::GradientAverager; between steps.
  int join() { return state_->averager.join(); }

  // Ends the step: every gradient holds the average of all ranks. What no backward has given is
  // averaged as it stands, or as zeros where there is no gradient. Returns the parameters that are
  // averaged for the first time, thawed or added since, also in steps that failed: the
  // optimiser may not have them.
  std::vector<at::Tensor> wait() {
    const std::vector<detail::NamedTensor> tensors = thawed();
    for (const detail::NamedTensor& one : tensors) detail::require_host(one);
    for (std::size_t i = add(tensors); i < state_->parameters.size(); ++i) {
      state_->averager.ready(state_->parameters[i].id);
      added_.push_back(state_->parameters[i].parameter);
    }
    for (detail::AveragedParameter& one : state_->parameters) {
      if (one.passes_left > 0) one.bring_home();
      one.passes_left = state_->options.backward_passes;
    }
    state_->averager.wait();
    return std::exchange(added_, {});
  }

  // While it lives, backward only accumulates: for several batches before a step. The backward
  // after it averages the sum; wait() averages what has no further one. All ranks do the same.
  //   {
  //     const auto accumulate = averager.no_sync();
  //     loss_of(first).backward();
  //   }
  //   loss_of(second).backward();
  class NoSync {
   public:
    explicit NoSync(GradientAverager& averager) : state_(averager.state_) { ++state_->paused; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;
    ~NoSync() { --state_->paused; }

   private:
    std::shared_ptr<detail::AveragerState> state_;
  };
  // A guard that holds the averaging back until its end.
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  // Sets the gradients to zeros, where they are: backward then accumulates without a copy. Those
  // that are not averaged yet become undefined.
  void zero_grad() {
    const at::NoGradGuard no_graph;
    for (const detail::NamedTensor& one : frozen_) one.tensor.mutable_grad().reset();
    for (detail::AveragedParameter& one : state_->parameters) {
      one.home.zero_();
      one.parameter.mutable_grad() = one.home;
    }
  }

  // What the steps so far came to, as of ronde::GradientAverager.
  [[nodiscard]] AveragerStatistics statistics() const { return state_->averager.statistics(); }

 private:
  using Node = decltype(::torch::autograd::impl::grad_accumulator(std::declval<at::Tensor>()));
  struct Hooked {
    Node node;  // torch holds it weakly
    std::uintptr_t key;
  };

  // What is frozen no longer (or never was, and has been added), and not averaged yet.
  [[nodiscard]] std::vector<detail::NamedTensor> thawed() const {
    std::vector<detail::NamedTensor> found;
    for (const detail::NamedTensor& one : frozen_) {
      if (one.tensor.requires_grad()) found.push_back(one);
    }
    return found;
  }
  // Returns the first index.
  std::size_t add(const std::vector<detail::NamedTensor>& tensors) {
    if (tensors.empty()) return state_->parameters.size();
    std::size_t bytes = 0;  // a sparse tensor would have no answer
    for (const detail::NamedTensor& one : tensors) {
      bytes += detail::GradientMemoryPool::bytes_of(one.tensor);
    }
    detail::GradientMemoryPool memory(state_->engine, bytes);
    const std::size_t before = state_->parameters.size();
    for (const detail::NamedTensor& one : tensors) add(one, memory.take(one.tensor));
    for (std::size_t i = before; i < state_->parameters.size(); ++i) hook(i);
    std::erase_if(frozen_, [](const auto& one) { return one.tensor.requires_grad(); });
    return before;
  }
  void add(const detail::NamedTensor& one, const at::Tensor& home) {
    detail::with_element(home.scalar_type(), [&](auto element) {
      const auto id = state_->averager.add("ronde.torch.gradient." + one.name,
                                           detail::span_of<decltype(element)>(home));
      state_->parameters.push_back(
          {one.name, one.tensor, home, id, state_->options.backward_passes});
    });
    state_->parameters.back().bring_home();
  }
  void hook(std::size_t index) {
    Node node = ::torch::autograd::impl::grad_accumulator(state_->parameters[index].parameter);
    const auto key = node->add_post_hook(std::make_unique<detail::AccumulatedHook>(state_, index));
    hooked_.push_back({std::move(node), key});
  }

  std::shared_ptr<detail::AveragerState> state_;
  std::vector<detail::NamedTensor> frozen_;
  std::unordered_set<const c10::TensorImpl*> known_;  // frozen or averaged, and so alive
  std::vector<at::Tensor> added_;                     // what no wait() has returned yet
  std::vector<Hooked> hooked_;
};

}  // namespace ronde::torch
