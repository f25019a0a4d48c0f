// SPDX-License-Identifier: Apache-2.0
// A folder for checkpoints that goes away with the test, and tensors to put into them.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/keep/checkpoint_directory.h"
#include "bindings/trainer/keep/checkpoint_names.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/parameter.h"
#include "test/unit/trainer/temporary_folder.h"

namespace ronde::trainer {

class CheckpointFiles : public testing::Test {
 protected:
  [[nodiscard]] std::string tensors_file(std::uint64_t step) const {
    return checkpoint_path(folder_, step) + "/tensors.safetensors";
  }
  [[nodiscard]] std::string state_file(std::uint64_t step) const {
    return checkpoint_path(folder_, step) + "/state.json";
  }

  // Without the syncs of write_file().
  static void overwrite(const std::string& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

// Two tensors whose values depend on a step.
struct SmallModel {
  std::vector<float> weight{1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F};
  std::vector<float> moment{0.5F, 0.25F};

  void take(std::uint64_t step) {
    for (float& value : weight) value += static_cast<float>(step);
    for (float& value : moment) value -= static_cast<float>(step);
  }
  std::vector<StateTensor> tensors() {
    return {{"fc/weight", {2, 3}, weight}, {"fc/weight/adam/m", {2}, moment}};
  }
  friend bool operator==(const SmallModel&, const SmallModel&) = default;
};

inline SmallModel model_of(std::uint64_t step) {
  SmallModel model;
  model.take(step);
  return model;
}

inline std::string bytes_of(SmallModel model) { return to_safetensors(model.tensors()); }

inline CheckpointState state_of(std::uint64_t step) {
  CheckpointState state;
  state.global_step = step;
  state.optimizer_steps = step;
  state.epoch = step / 10;
  state.step_in_epoch = step % 10;
  state.epoch_sums = {0.1 * static_cast<double>(step), 3.0, 4.0};
  state.flags = {{"--model", "mlp"}, {"--data", ""}, {"--seed", "1"}};
  return state;
}

// What a call throws, as text: "no error" where it throws nothing.
template <typename Error = DataError, typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace ronde::trainer
