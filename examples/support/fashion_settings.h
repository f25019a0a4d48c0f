// SPDX-License-Identifier: Apache-2.0
// What train_fashion_mnist is asked to do.
#pragma once

#include <cstddef>
#include <string>

#include "bindings/trainer/loop/agreement.h"
#include "examples/support/chief_flags.h"
#include "examples/support/training_flags.h"

namespace ronde::examples {

struct FashionSettings {
  std::string data;
  std::string model;
  std::string device;
  std::string batch_norm;
  std::string plot;
  std::size_t steps = 0;
  std::size_t test_images = 0;
  TrainingSettings training;
  ChiefSettings chief;
  bool evaluates = false;  // --job evaluate
  double idle_seconds = 0.0;
  trainer::Flags flags;
};

// Returns false if the user only asked for help or for the version. Throws UsageError.
[[nodiscard]] bool read_settings(const char* program, int argc, char** argv,
                                 FashionSettings& settings);

}  // namespace ronde::examples
