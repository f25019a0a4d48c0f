// SPDX-License-Identifier: Apache-2.0
// Ronde for trainers on LibTorch: header-only, over the C++ facade. With CMake it is the target
// ronde::torch of find_package(ronde COMPONENTS torch).
//
//   ronde::Engine engine;
//   ronde::torch::DistributedOptimizer<torch::optim::SGD> optimizer(engine, model, 0.01);
//   ...                                   (the loop stays as it is; step() averages)
//
// or, where the optimiser stays as it is too:
//
//   ronde::torch::broadcast_parameters(engine, model);
//   ronde::torch::GradientAverager averager(engine, model);
//   ...
//   loss.backward();
//   averager.wait();
//   optimizer.step();
//
// Tensors are in host memory. Inside namespace ronde the library itself is ::torch.
#pragma once

#include <ronde/torch/broadcast.hpp>              // IWYU pragma: export
#include <ronde/torch/distributed_optimizer.hpp>  // IWYU pragma: export
#include <ronde/torch/gradient_averager.hpp>      // IWYU pragma: export
