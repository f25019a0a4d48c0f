// SPDX-License-Identifier: Apache-2.0
// Rank 1 leaves out step 3, in which its loss was no number, of an optimiser of LibTorch.
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <ronde/torch.hpp>

int main() {
  try {
    ronde::Engine engine;
    ::torch::nn::Linear model(3, 1);
    ronde::torch::DistributedOptimizer<::torch::optim::SGD> optimizer(
        engine, *model, ::torch::optim::SGDOptions(0.1));
    for (std::uint64_t step = 0; step < 10; ++step) {
      if (step == 3 && engine.rank() == 1) continue;
      optimizer.zero_grad();
      model->forward(at::ones({2, 3})).sum().backward();
      optimizer.step(nullptr, step);
    }
    std::puts("went through");
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
  }
  return 0;
}
