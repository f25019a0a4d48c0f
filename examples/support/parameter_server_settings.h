// SPDX-License-Identifier: Apache-2.0
// The flags of parameter_server, beside those that name its task (server/tasks.h).
#pragma once

#include <cstdint>
#include <ronde/parameter_server.hpp>
#include <ronde/trainer.hpp>
#include <string>
#include <vector>

namespace ronde::examples {

struct Settings {
  std::string model = "line";
  std::string feed = "shards";
  std::string data = trainer::kFashionMnistDirectory;
  std::uint64_t steps = 150'000;  // global ones: what a line needs at this rate
  std::uint64_t steps_to_validate = 1000;
  std::uint64_t batch = 1;  // samples of a worker in a step
  std::uint64_t seed = 1;
  std::uint64_t servers = 0;  // under mpirun
  double learning_rate = 3e-5;
  double slow_ms = 0.0;  // how much longer each step of this task takes
  trainer::server::ParameterServerOptions options;
};

// Throws TrainerError that names a flag that is not there, or a value that is not valid.
[[nodiscard]] Settings settings_of(std::vector<std::string> arguments);

}  // namespace ronde::examples
