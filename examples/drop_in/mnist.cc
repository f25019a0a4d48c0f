// SPDX-License-Identifier: Apache-2.0
// A training loop as LibTorch's users write it: two convolutions and two dense layers learn MNIST,
// or Fashion-MNIST. mnist.cc is for one process, and mnist_ronde.cc for any number of ranks.
#include <torch/torch.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

namespace {

constexpr std::size_t kBatch = 64;

struct Net : torch::nn::Module {
  Net() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1->forward(x), 2));
    x = torch::relu(torch::max_pool2d(conv2->forward(x), 2)).flatten(1);
    return torch::log_softmax(fc2->forward(torch::relu(fc1->forward(x))), 1);
  }

  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 10, 5)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(10, 20, 5)};
  torch::nn::Linear fc1{320, 50};
  torch::nn::Linear fc2{50, 10};
};

auto images(const char* folder, torch::data::datasets::MNIST::Mode mode) {
  return torch::data::datasets::MNIST(folder, mode)
      .map(torch::data::transforms::Normalize<>(0.1307, 0.3081))
      .map(torch::data::transforms::Stack<>());
}

double accuracy(Net& model, const char* folder) {
  const torch::NoGradGuard no_grad;
  auto set = images(folder, torch::data::datasets::MNIST::Mode::kTest);
  auto loader = torch::data::make_data_loader(std::move(set), 1000);
  double right = 0.0;
  double all = 0.0;
  for (auto& batch : *loader) {
    right += model.forward(batch.data).argmax(1).eq(batch.target).sum().item<double>();
    all += static_cast<double>(batch.target.numel());
  }
  return right / all;
}

void train(const char* folder, int epochs) {
  Net model;
  auto set = images(folder, torch::data::datasets::MNIST::Mode::kTrain);
  const std::size_t size = set.size().value();
  torch::data::samplers::RandomSampler order(size);
  auto loader = torch::data::make_data_loader(std::move(set), order, kBatch);
  const auto options = torch::optim::SGDOptions(0.01).momentum(0.5);
  torch::optim::SGD optimizer(model.parameters(), options);
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      torch::nll_loss(model.forward(batch.data), batch.target).backward();
      optimizer.step();
    }
    std::printf("epoch=%d accuracy=%.4f\n", epoch, accuracy(model, folder));
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s FOLDER_OF_IDX_FILES EPOCHS\n", argv[0]);
    return 2;
  }
  torch::manual_seed(1);
  torch::set_num_threads(1);
  train(argv[1], std::atoi(argv[2]));
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
