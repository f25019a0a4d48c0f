// SPDX-License-Identifier: Apache-2.0
// Ranks that did different things.
//   averager, core: rank 1 leaves out step 3, in which its loss was no number, of the gradient
//     averager of the C++ facade or of the training core's optimiser
//   engines: two threads open engines of the same names, in another order on every second rank
//
// usage: steps_worker averager|core|engines
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <future>
#include <ronde/ronde.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/fit/strategy/optimizer.h"
#include "bindings/trainer/fit/strategy/strategies.h"
#include "bindings/trainer/tensor/losses.h"
#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/parameter.h"
#include "bindings/trainer/tensor/tape.h"

namespace {

constexpr std::uint64_t kSteps = 10;
constexpr std::uint64_t kLeftOut = 3;

// Every rank but 1 has the same gradients, so that an average of two steps would show.
void averager() {
  ronde::Engine engine;
  std::vector<float> g(100);
  ronde::GradientAverager averager(engine);
  const auto id = averager.add("g", std::span(g));
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    if (step == kLeftOut && engine.rank() == 1) continue;
    g.assign(g.size(), static_cast<float>(step));
    averager.begin_step(step);
    averager.ready(id);
    averager.wait();
    if (g[99] != static_cast<float>(step)) std::printf("mixed steps: %g\n", double{g[99]});
  }
}

void core() {
  using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would
  struct Weight {
    Parameter weight{"weight", {3}};
    Tensor operator()(const Tensor& input) { return input * input.tape().use(weight); }
    std::vector<Parameter*> parameters() { return {&weight}; }
  } own;
  MultiWorkerMirrored strategy({.say = [](const std::string&) {}});
  const Scope scope(strategy);
  ronde::Engine& engine = strategy.replica(0).engine();
  Model model(own);
  Optimizer optimizer(model, {.schedule = {.learning_rate = 1.0}});
  Tape tape;
  float sum = 0;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    if (step == kLeftOut && engine.rank() == 1) continue;
    optimizer.begin_step(step);
    tape.begin();
    const std::vector<float> gradient(3, static_cast<float>(step));
    Loss loss;
    loss.value = ronde::trainer::sum(model(tape.constant({3}, gradient)));
    optimizer.backward(tape, loss);
    optimizer.step();
    sum += static_cast<float>(step * static_cast<std::uint64_t>(engine.size()));
    if (own.weight.value()[0] != -sum)
      std::printf("mixed steps: %g\n", double{own.weight.value()[0]});
  }
}

// Each has the same names of tensors, so that engines that met the wrong one would sum up.
void engines() {
  const std::array<std::string, 2> names{"metric", "model"};
  const bool odd = ronde::Engine("which rank this is").rank() % 2 == 1;
  std::array<std::future<void>, 2> threads;
  for (std::size_t which = 0; which < threads.size(); ++which) {
    threads[which] = std::async(std::launch::async, [&, which] {
      if ((which == 1) == odd) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      ronde::Engine engine(names[which]);
      std::vector<float> x(1, static_cast<float>(which));
      engine.allreduce_blocking("x", x, ronde::sum);
      if (x[0] != static_cast<float>(static_cast<int>(which) * engine.size())) {
        std::printf("mixed engines: %g\n", double{x[0]});
      }
      engine.close();
    });
  }
  for (auto& thread : threads) thread.get();
}

}  // namespace

int main(int count, char** arguments) {
  const std::string what = count == 2 ? arguments[1] : "";
  try {
    if (what == "averager") {
      averager();
    } else if (what == "core") {
      core();
    } else if (what == "engines") {
      engines();
    } else {
      return 2;
    }
    std::puts("went through");
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
  }
  return 0;
}
