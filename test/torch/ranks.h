// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of one process, each with a module of its own.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <ronde/torch.hpp>
#include <string>
#include <thread>
#include <vector>

namespace ronde::torch::test {

// Runs body(engine) for each rank of a local job; throws the first error of rank order.
template <typename Body>
void on_ranks(int size, const Body& body) {
  LocalJob job(size);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Engine engine(job, rank);
        body(engine);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// Tied weights, a frozen parameter, one that nothing uses, channels-last memory and a buffer.
struct Model : ::torch::nn::Module {
  explicit Model(double value = 0.1) {
    conv = register_module("conv", ::torch::nn::Conv2d(2, 4, 3));
    first = register_module("first", ::torch::nn::Linear(16, 6));
    second = register_module("second", ::torch::nn::Linear(16, 6));
    second->weight = second->register_parameter("tied", first->weight);
    unused = register_parameter("unused", at::ones({3}));
    frozen = register_parameter("frozen", at::ones({6}), false);
    count = register_buffer("count", at::zeros({}, at::kLong));
    const at::NoGradGuard no_graph;
    for (at::Tensor& one : parameters()) {
      one.copy_(at::sin(at::arange(one.numel(), at::kFloat) + value).mul(0.2).view_as(one));
    }
    conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
  }

  at::Tensor forward(const at::Tensor& images) {
    const at::Tensor features = conv(images).relu().contiguous().flatten(1);
    return (first(features) + second(features * 0.5)) * frozen;
  }

  ::torch::nn::Conv2d conv{nullptr};
  ::torch::nn::Linear first{nullptr};
  ::torch::nn::Linear second{nullptr};
  at::Tensor unused;
  at::Tensor frozen;
  at::Tensor count;
};

struct Batch {
  at::Tensor images;
  at::Tensor wanted;
};

// The part of a batch that a rank of so many has.
inline Batch batch_of(int step, int rank = 0, int size = 1) {
  constexpr std::int64_t kSamples = 12;
  const at::Tensor numbers = at::arange(kSamples * 38, at::kFloat) * 0.37 + step;
  const at::Tensor all =
      at::sin(numbers).view({kSamples, 38}).chunk(size)[static_cast<std::size_t>(rank)];
  return {all.slice(1, 0, 32).reshape({-1, 2, 4, 4}), all.slice(1, 32, 38).contiguous()};
}

inline at::Tensor loss_of(Model& model, const Batch& batch) {
  return ::torch::nn::functional::mse_loss(model.forward(batch.images), batch.wanted);
}

// The largest difference between the parameters of two modules.
inline double distance(const ::torch::nn::Module& one, const ::torch::nn::Module& other) {
  double largest = 0.0;
  const auto there = other.parameters();
  std::size_t i = 0;
  for (const at::Tensor& here : one.parameters()) {
    largest = std::max(largest, (here - there[i++]).abs().max().item<double>());
  }
  return largest;
}

inline void set_to_none(const ::torch::nn::Module& module) {
  for (at::Tensor& one : module.parameters()) one.mutable_grad() = at::Tensor();
}

}  // namespace ronde::torch::test
