// SPDX-License-Identifier: Apache-2.0
// Pipeline parallelism: four ranks have two layers each of a network, which learns to repeat its
// input. The micro-batches of a step go through the ranks by messages between neighbours alone, a
// forward and a backward pass by turns (1F1B). A training on one rank has the same result.
#include <cstdio>
#include <ronde/trainer.hpp>
using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would
constexpr std::size_t kStages = 4, kMicro = 8, kRows = 16, kWidth = 32, kInputs = kRows * kWidth;
constexpr Pass kPass{.global_batch = kMicro * kRows};  // what losses are divided by
std::unique_ptr<Layers> layers_of(std::size_t first, std::size_t end) {
  auto layers = std::make_unique<Layers>();
  for (std::size_t i = first; i < end; ++i) {  // first weights depend on names alone
    if (i > 0) layers->add<Applied>(relu);
    layers->add<Linear>("fc" + std::to_string(i), kWidth, kWidth, Initialization::kHe, 1);
  }
  return layers;
}
struct Flight {  // a micro-batch between its forward and its backward pass
  Tape tape;
  Tensor input, output;
  std::vector<float> gradient = std::vector<float>(kInputs);
  ronde::Work activations, gradients;  // on their way to the neighbours
};
void forward(ronde::Engine& engine, Layers& mine, Flight& now, std::span<const float> samples) {
  std::vector<float> inputs(samples.begin(), samples.end());
  if (engine.rank() > 0) engine.recv_blocking(engine.rank() - 1, 0, inputs);
  now.tape.begin(kPass);
  now.input = now.tape.variable({kRows, kWidth}, inputs);
  now.output = mine(now.input);
  if (engine.rank() + 1 == engine.size()) return;
  now.activations = engine.send(engine.rank() + 1, 0, now.output.values());
}
void backward(ronde::Engine& engine, Flight& now, std::span<const float> targets) {
  if (now.gradients.valid()) now.gradients.wait();  // of the micro-batch that was here before
  Tensor loss = mean_squared_error(now.output, targets).value;
  if (engine.rank() + 1 < engine.size()) {  // it is not here: this has the same gradient
    engine.recv_blocking(engine.rank() + 1, 0, now.gradient);
    now.activations.wait();
    loss = sum(now.output * now.tape.constant({kRows, kWidth}, now.gradient));
  }
  now.tape.backward(loss);
  if (engine.rank() == 0) return;
  now.gradient = now.tape.gradient(now.input);
  now.gradients = engine.send(engine.rank() - 1, 0, std::span<const float>(now.gradient));
}
int learn(Replica& here) {
  if (here.size() != int{kStages}) throw TrainerError("use four ranks, as mpirun -np 4 does");
  const auto rank = static_cast<std::size_t>(here.rank());
  const std::size_t ahead = kStages - 1 - rank;  // forward passes before the first backward one
  const auto mine = layers_of(2 * rank, 2 * rank + 2), whole = layers_of(0, 2 * kStages);
  UpdateRule sgd({}, mine->parameters()), sgd_of_whole({}, whole->parameters());
  std::array<Flight, kStages> flights;
  Generator random(1);
  double loss = 0.0, before = static_cast<double>(here.engine().statistics().batches);
  for (int step = 1; step <= 20; ++step) {
    std::vector<float> all(kMicro * kInputs);
    for (float& one : all) one = random.uniform(-1.0F, 1.0F);
    const auto part = [&](auto i) { return std::span(all).subspan(i * kInputs, kInputs); };
    for (std::size_t i = 0; i < kMicro + ahead; ++i) {
      if (i < kMicro) forward(here.engine(), *mine, flights[i % kStages], part(i));
      if (i >= ahead) backward(here.engine(), flights[(i - ahead) % kStages], part(i - ahead));
    }
    Tape tape;  // the same on one rank
    tape.begin(kPass);
    const Tensor output = (*whole)(tape.borrow({kPass.global_batch, kWidth}, all));
    const Loss error = mean_squared_error(output, all);
    tape.backward(error.value);
    for (UpdateRule* const rule : {&sgd, &sgd_of_whole}) {
      rule->step(0.1);
      for (Parameter* const one : rule->parameters()) one->begin_step();
    }
    loss = error.value.item();
  }
  std::array worst{0.0, static_cast<double>(here.engine().statistics().batches) - before};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto right = sgd_of_whole.parameters()[4 * rank + i]->value();
    for (std::size_t k = 0; k < right.size(); ++k)
      worst[0] = std::max<double>(worst[0], std::abs(right[k] - sgd.parameters()[i]->value()[k]));
  }
  here.allreduce("worst", worst, Reduction::kMax);
  if (here.is_chief())
    std::printf("loss=%.4f difference=%.2g collectives=%g\n", loss, worst[0], worst[1]);
  return worst[0] <= 1e-6 && worst[1] == 0 ? 0 : 1;
}
int main(int argc, char** argv) {
  FlagTable flags("pipeline", "Trains a network whose layers are spread over four ranks.");
  return run_program(argc, argv, flags, [](Strategy& strategy) {
    return Strategy::local_results(strategy.run(learn)).front();
  });
}
