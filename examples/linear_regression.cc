// SPDX-License-Identifier: Apache-2.0
// Learns y = 2 x + 10 from noisy samples, of which every rank draws its own: a line on the tape,
// and the smallest loop around DistributedOptimizer.
#include <array>
#include <cmath>
#include <cstdio>
#include <ronde/trainer.hpp>

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

namespace {

struct Settings {
  std::size_t steps = 500;
  std::size_t steps_to_validate = 50;
  std::size_t batch = 64;
  double learning_rate = 0.05;
  double momentum = 0.0;
  std::uint64_t seed = 1;
};

// As many samples as one step of all ranks takes, new ones in each repetition.
Dataset noisy_line(std::uint64_t seed, std::size_t samples) {
  const auto draw = [seed, samples](std::uint64_t step, std::size_t index, const SampleRoom& room) {
    Generator generator(seed, step * samples + index);
    const float x = generator.uniform(-1.0F, 1.0F);
    room.input[0] = x;
    room.targets[0] = 2.0F * x + 10.0F + generator.uniform(-0.5F, 0.5F);
    return true;
  };
  return Dataset::from_generator({.shape = {1}, .classes = 0, .targets = 1}, draw, samples);
}

int learn(ronde::Engine& engine, Replica& replica, const Settings& all) {
  const auto [rank, ranks] = share_of(replica);
  Linear line("line", 1, 1, Initialization::kGlorot, all.seed);
  const Model model(line);
  const float& weight = model.parameters()[0]->value()[0];
  const float& bias = model.parameters()[1]->value()[0];
  Sgd sgd(model.parameters(), {.momentum = all.momentum});
  DistributedOptimizer optimizer(engine, model.parameters(), {}, sgd,
                                 {.schedule = {.learning_rate = all.learning_rate}});
  optimizer.broadcast_state();
  const double start = steady_seconds();
  Epoch batches = noisy_line(all.seed, all.batch * ranks)
                      .repeat(all.steps)
                      .batch(all.batch * ranks)
                      .shard(rank, ranks)
                      .epoch(0);
  Tape tape;
  try {
    while (const StepBatch* batch = batches.next()) {
      const Batch& part = batch->parts.front();
      tape.begin();
      const Loss loss = mean_squared_error(model(tape.borrow(part.shape, part.inputs)),
                                           part.targets, batch->global_size);
      optimizer.backward(tape, loss);
      optimizer.step();
      const std::size_t step = batch->step + 1;
      if (step % all.steps_to_validate != 0 && step != all.steps) continue;
      std::array<double, 1> total{loss.sum};
      replica.allreduce("loss", total, Reduction::kSum);
      if (!replica.is_chief()) continue;
      std::printf("step %zu/%zu: weight %.4f, bias %.4f, loss %.6g\n", step, all.steps, weight,
                  bias, total[0] / static_cast<double>(batch->global_size));
    }
    if (!std::isfinite(weight) || !std::isfinite(bias)) throw NotFinite("", "line");
  } catch (const NotFinite&) {  // on every rank
    throw AgreedError("the line is not finite any more: use a smaller learning rate or momentum", 0,
                      kExitConfiguration);
  }
  const std::string hash = model.parameter_hash();
  require_same_parameters(replica, hash);
  if (replica.is_chief()) {
    std::printf("ranks=%zu weight=%.6f bias=%.6f seconds=%.3f param_hash=%s\n", ranks, weight, bias,
                steady_seconds() - start, hash.c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings all;
  FlagTable flags("linear_regression", "Learns y = 2 x + 10 from noisy samples with Ronde.");
  flags.add(
      {{"steps", whole(all.steps, 1, 10'000'000), "steps down the gradient"},
       {"steps-to-validate", whole(all.steps_to_validate, 1, 10'000'000),
        "print the line and the loss after so many steps"},
       {"batch", whole(all.batch, 1, 1'000'000), "samples of a rank in a step"},
       {"learning-rate", positive(all.learning_rate, 1.0), "step size"},
       {"momentum", share(all.momentum), "share of the last step that is kept"},
       {"seed", whole(all.seed, 0, UINT64_MAX), "seed of the first weight and of the samples"}});
  return run_program(argc, argv, flags, [&all](ronde::Engine& engine, Replica& replica) {
    return learn(engine, replica, all);
  });
}
