// SPDX-License-Identifier: Apache-2.0
// Training on a GPU, where the build has CUDA: the flag --device, and the training.
#pragma once

#include <memory>
#include <string>

#include "bindings/trainer/data/fashion_mnist.h"
#include "bindings/trainer/fit/program/flags.h"
#include "bindings/trainer/fit/program/settings.h"
#include "bindings/trainer/fit/program/training.h"
#include "bindings/trainer/fit/strategy/strategy.h"
#include "bindings/trainer/nn/network.h"
#include "examples/gpu/device_math.h"

namespace ronde::examples {

// Adds --device. When the table is parsed `math` is the device, and null for the CPU: it was opened
// before the engine, which takes the same one, and must outlive that, since the engine may still
// work there. What cannot be trained there is refused, after the checks that came before.
void add_device_flag(trainer::FlagTable& flags, std::unique_ptr<trainer::DeviceMath>& math,
                     const std::string& model, const trainer::StepSettings& step,
                     const trainer::RunSettings& run);

// As trainer::train() does it, from the parameters of `model`, with SGD.
int train_on_device(trainer::Strategy& strategy, trainer::DeviceMath& math,
                    const trainer::Network& model, const trainer::StepSettings& step,
                    const trainer::FashionMnist& images, const trainer::Training& training,
                    const trainer::RunSettings& run);

}  // namespace ronde::examples
