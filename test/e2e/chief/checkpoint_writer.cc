// SPDX-License-Identifier: Apache-2.0
// A training without a training: saves checkpoints, and tells which one it would go on from.
//
// usage: checkpoint_writer save DIRECTORY STEP:VERSION...
//        checkpoint_writer show DIRECTORY...
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "bindings/trainer/keep/checkpoints.h"

namespace {

using ronde::trainer::Checkpoints;

constexpr std::size_t kElements = 100;
// An owner that was killed before it could write its name may be on another host, where it lives.
constexpr ronde::trainer::OwnerPatience kPatience{.silence = std::chrono::milliseconds(500)};
const ronde::trainer::Flags kFlags{{"--model", "none"}};

// Tensors that tell their version.
struct Model {
  explicit Model(double version) {
    for (std::size_t i = 0; i < kElements; ++i) {
      values.push_back(static_cast<float>(version) / static_cast<float>(i + 1));
    }
  }
  std::vector<ronde::trainer::StateTensor> tensors() { return {{"values", {kElements}, values}}; }

  std::vector<float> values;
};

void say(const std::string& line) { std::printf("%s\n", line.c_str()); }

// "STEP:VERSION", or "none".
std::string go_on(Checkpoints& checkpoints) {
  Model model(-1.0);
  const auto state = checkpoints.restore({.flags = kFlags}, model.tensors());
  if (!state.has_value()) return "none";
  const double version = state->numbers.at("version");
  if (model.values != Model(version).values) return "tensors of another version";
  return std::to_string(state->global_step) + ":" + std::to_string(static_cast<int>(version));
}

bool save(Checkpoints& checkpoints, const std::string& what) {
  ronde::trainer::CheckpointState state;
  state.global_step = std::stoull(what);
  state.flags = kFlags;
  state.numbers["version"] = std::stod(what.substr(what.find(':') + 1));
  Model model(state.numbers["version"]);
  checkpoints.save(state, model.tensors());
  return checkpoints.flush();
}

int run(const std::vector<std::string>& arguments) {
  bool good = true;
  for (std::size_t i = 2; i < arguments.size(); ++i) {
    const bool saves = arguments[1] == "save";
    Checkpoints checkpoints({.directory = saves ? arguments[2] : arguments[i], .keep = 1}, say,
                            ronde::trainer::disk(), kPatience);
    say(go_on(checkpoints));
    if (!saves) continue;
    while (++i < arguments.size()) good = save(checkpoints, arguments[i]) && good;
  }
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
