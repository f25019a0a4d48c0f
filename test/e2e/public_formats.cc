// SPDX-License-Identifier: Apache-2.0
// Writes what a training that was resumed leaves behind, and reads files of tensors, for
// public_readers.py, which knows the values.
//
//   public_formats write DIRECTORY   logs/ (event files), metrics.jsonl, step-60/
//   public_formats read FILE         a line for each tensor: name, shape, values
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/trainer/keep/checkpoint.h"
#include "bindings/trainer/keep/logs.h"
#include "bindings/trainer/keep/safetensors.h"

namespace {

// Steps of 10, whose loss tells the run.
void write_run(const std::string& directory, int run, std::uint64_t first, std::uint64_t last) {
  ronde::trainer::EventWriter events(directory + "/logs", first);
  ronde::trainer::MetricLog log(directory + "/metrics.jsonl", first);
  events.text("flags", first, "| flag | value |\n|---|---|\n| run | " + std::to_string(run) + " |");
  for (std::uint64_t step = first; step <= last; step += 10) {
    const double loss = static_cast<double>(step) + 0.25 * run;
    events.scalar("training/loss", step, loss);
    events.scalar("training/accuracy", step, 0.0);
    log.write(step, {{"loss", loss}, {"rate", std::numeric_limits<double>::quiet_NaN()}});
  }
  events.flush();
}

void write_tensors(const std::string& directory) {
  using Limits = std::numeric_limits<float>;
  std::vector<float> weights = {0.5F, -1.25F, 2.0F, 3.0F, -4.0F, 1e30F};
  std::vector<float> scalar = {3.5F};
  std::vector<float> special = {-0.0F,         Limits::infinity(), -Limits::infinity(),
                                Limits::max(), Limits::lowest(),   Limits::denorm_min(),
                                Limits::min(), Limits::epsilon(),  Limits::quiet_NaN()};
  const std::vector<ronde::trainer::StateTensor> tensors = {{"fc1/weight", {2, 3}, weights},
                                                            {"scalar", {}, scalar},
                                                            {"größe \"1\"/m", {1, 9, 1}, special}};
  ronde::trainer::CheckpointState state;
  state.global_step = 60;
  ronde::trainer::write_checkpoint(ronde::trainer::disk(), directory + "/step-60", state,
                                   ronde::trainer::to_safetensors(tensors, {{"library", "ronde"}}));
}

void read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be opened");
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  for (const auto& [name, tensor] : ronde::trainer::from_safetensors(bytes, path)) {
    std::printf("%s\t", name.c_str());
    for (const std::size_t side : tensor.shape) std::printf("%zu ", side);
    std::printf("\t");
    for (std::size_t i = 0; i < tensor.bytes.size(); i += sizeof(float)) {
      float value = 0.0F;
      std::memcpy(&value, tensor.bytes.data() + i, sizeof value);
      std::printf("%a ", static_cast<double>(value));
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 2 && arguments[0] == "write") {
      // The second run goes on after the first one's checkpoint of step 30.
      write_run(arguments[1], 1, 0, 60);
      write_run(arguments[1], 2, 40, 80);
      write_tensors(arguments[1]);
    } else if (arguments.size() == 2 && arguments[0] == "read") {
      read(arguments[1]);
    } else {
      throw std::runtime_error("usage: public_formats write DIRECTORY | read FILE");
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "public_formats: %s\n", error.what());
    return 1;
  }
  return 0;
}
