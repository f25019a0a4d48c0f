// SPDX-License-Identifier: Apache-2.0
// An optimiser of LibTorch that averages. Included by ronde/torch.hpp.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <ronde/torch/broadcast.hpp>
#include <ronde/torch/gradient_averager.hpp>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ronde::torch {

// `Base`, an optimiser of LibTorch, over all parameters of a module that require a gradient; one
// that is thawed later, on every rank, comes into the first group in the step that it is averaged
// in. (Adagrad, and LBFGS after a step, cannot take it, and throw.) What the program puts into a
// group later (add_param_group), the same on every rank, is averaged from then on. The constructor
// gives every rank the module of rank 0, and step() averages the gradients first.
//
//   ronde::torch::DistributedOptimizer<torch::optim::Adam> optimizer(engine, model,
//                                                                    torch::optim::AdamOptions(1e-3));
//
// Ownership and errors are those of GradientAverager; step() throws what its wait() does.
//
// Thread safety: as GradientAverager.
template <typename Base>
class DistributedOptimizer : public Base {
 public:
  using LossClosure = ::torch::optim::Optimizer::LossClosure;

  // `options` are those of Base. Every rank makes it, with the same module.
  template <typename Options>
  DistributedOptimizer(Engine& engine, ::torch::nn::Module& module, const Options& options,
                       const GradientOptions& gradients = {})
      : Base(trained(module), options),
        engine_(engine),
        op_(gradients.op),
        loss_name_(loss_name(module)),
        averager_(start(engine, module), module, gradients) {}

  // Averages the gradients unless average() has, and steps. With a closure, what each of its calls
  // leaves is averaged, and the loss that it returns, by which a line search decides, with the same
  // operation.
  at::Tensor step(LossClosure closure = nullptr) override {
    if (closure != nullptr) {
      averaged_ = false;  // the closure makes gradients of its own
      return Base::step([this, &closure] {
        const at::Tensor loss = closure();
        wait();
        return averaged(loss);
      });
    }
    if (!std::exchange(averaged_, false)) wait();
    return Base::step(nullptr);  // LBFGS has no default, and says what it needs
  }

  // The same for a step that has this number on every rank: where a rank has left out a step all of
  // them get an Error (RONDE_MISMATCH), and none steps. In every step or in none. Without a closure
  // the numbers are compared beside the gradients, with one more small allreduce; averager()
  // .begin_step() before backward() needs none.
  at::Tensor step(LossClosure closure, std::uint64_t number) {
    if (closure != nullptr) {
      return step([&] {
        averager_.begin_step(number);
        return closure();
      });
    }
    if (!std::exchange(averaged_, false)) wait();
    float nothing = 0;
    ronde::GradientAverager numbers(engine_);
    numbers.add(loss_name_ + ".step", std::span(&nothing, 1));
    numbers.begin_step(number);
    numbers.wait();
    return Base::step(nullptr);
  }

  // Averages the gradients for the next step(): for clipping in between. No backward may come
  // between it and that step(), which would take what this rank alone has added.
  void average() {
    wait();
    averaged_ = true;
  }

  // Sets gradients to zeros, in the memory where they are averaged. torch 2 has the parameter; the
  // gradients stay defined with either value, for they would be copied there again.
  void zero_grad(bool /*set_to_none*/ = true) {
    add_grouped();
    averager_.zero_grad();
  }

  // For no_sync() and statistics().
  [[nodiscard]] GradientAverager& averager() { return averager_; }

 private:
  static std::vector<at::Tensor> trained(const ::torch::nn::Module& module) {
    std::vector<at::Tensor> found;
    for (const detail::NamedTensor& one : detail::tensors_of(module, false)) {
      if (one.tensor.requires_grad()) found.push_back(one.tensor);
    }
    return found;
  }
  static std::string loss_name(const ::torch::nn::Module& module) {
    const std::vector<detail::NamedTensor> tensors = detail::tensors_of(module, false);
    return "ronde.torch.loss" + (tensors.empty() ? "" : "." + tensors.front().name);
  }
  static Engine& start(Engine& engine, const ::torch::nn::Module& module) {
    broadcast_parameters(engine, module);
    return engine;
  }
  // What the program has put into the groups.
  void add_grouped() {
    const auto& groups = this->param_groups();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const std::vector<at::Tensor>& parameters = groups[i].params();
      for (std::size_t j = 0; j < parameters.size(); ++j) {
        if (!grouped_.insert(parameters[j].unsafeGetTensorImpl()).second) continue;
        averager_.add("param_groups[" + std::to_string(i) + "].params[" + std::to_string(j) + "]",
                      parameters[j]);
      }
    }
  }
  void wait() {
    add_grouped();
    for (const at::Tensor& one : averager_.wait()) {
      if (!grouped_.insert(one.unsafeGetTensorImpl()).second) continue;
      this->param_groups().front().params().push_back(one);
    }
  }

  at::Tensor averaged(const at::Tensor& loss) {
    if (!loss.defined()) return loss;
    const at::Tensor mean = detail::contiguous(loss.detach()).clone();
    detail::with_element(mean.scalar_type(), [&](auto element) {
      engine_.allreduce_blocking(loss_name_, detail::span_of<decltype(element)>(mean), op_);
    });
    return mean;
  }

  Engine& engine_;
  const Op op_;
  const std::string loss_name_;
  GradientAverager averager_;
  std::unordered_set<const c10::TensorImpl*> grouped_;  // in a group, and known to the averager
  bool averaged_ = false;
};

}  // namespace ronde::torch
