// SPDX-License-Identifier: Apache-2.0
// Learns y = 2 x + 10 from noisy samples, of which every replica draws its own: by allreduce, or
// with servers, each task in a shell of its own (TOUR.md has the commands), where the guides' rate
// of 3e-5 and one sample a step are the defaults.
#include <ronde/parameter_server.hpp>
#include <ronde/trainer.hpp>

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

namespace {

struct Settings {
  std::size_t batch = 64;
  double learning_rate = 0.05;
  double momentum = 0.0;
  RunSettings run{.steps = 500, .log_every = 50};
  server::ServerSettings servers;
};

constexpr std::size_t kMostSteps = 10'000'000;

// Steps of as many samples as all replicas take, new ones in each repetition.
Dataset noisy_line(std::uint64_t seed, std::size_t samples, std::size_t steps) {
  const auto draw = [seed, samples](std::uint64_t step, std::size_t index, const SampleRoom& room) {
    Generator generator(seed, step * samples + index);
    const float x = generator.uniform(-1.7F, 1.7F);  // of deviation 1, as the guides draw it
    room.input[0] = x;
    room.targets[0] = 2.0F * x + 10.0F + generator.uniform(-0.5F, 0.5F);
    return true;
  };
  return Dataset::from_generator({.shape = {1}, .classes = 0, .targets = 1}, draw, samples)
      .repeat(steps)
      .batch(samples);
}

int learn(Strategy& strategy, const FlagTable& flags, Settings& all) {
  const std::size_t batch = all.batch * strategy.num_replicas_in_sync();
  const Dataset data = noisy_line(all.run.seed, batch, kMostSteps);
  Sequential model({input({1}), dense(1).named("line")}, all.run.seed);
  model.compile(sgd(all.learning_rate, all.momentum), regression_loss);
  const auto number = [&](std::size_t i) { return model.parameters()[i]->value().data(); };
  return train(model,
               {.data = data,
                .test = noisy_line(all.run.seed + 1, 1000, 1),
                .same = flags.values_of({"seed", "batch"}),
                .watch = {{"weight", number(0)}, {"bias", number(1)}},
                .loss_name = "cost"},  // as the guides' summary
               all.run);
}

}  // namespace

int main(int argc, char** argv) {
  Settings all;
  FlagTable flags("linear_regression", "Learns y = 2 x + 10 from noisy samples with Ronde.");
  flags.add({{"steps", whole(all.run.steps, 1, kMostSteps), "steps; 150000 with servers"},
             {"steps-to-validate", whole(all.run.log_every, 1, kMostSteps),
              "steps between two lines of the line and the loss; 1000 with servers"},
             {"batch", whole(all.batch, 1, 100'000), "samples of a rank in a step; 1 with servers"},
             {"learning-rate", positive(all.learning_rate, 1.0), "step size; 3e-5 with servers"},
             {"momentum", share(all.momentum), "share of the last step that is kept"},
             {"seed", whole(all.run.seed, 0, UINT64_MAX), "seed of the weight and the samples"}});
  add_supervisor_flags(flags, all.run.supervisor);
  add_server_flags(flags, all.servers);
  flags.check([&] {  // a program as the guides', which are for servers, has their settings
    for (const auto& [flag, value] : {std::pair{"steps", "150000"},
                                      {"steps-to-validate", "1000"},
                                      {"batch", "1"},
                                      {"learning-rate", "3e-5"}}) {
      if (all.servers.chosen) flags.otherwise(flag, value);
    }
  });
  const auto body = [&](Strategy& strategy) { return learn(strategy, flags, all); };
  return run_program(argc, argv, flags, body, server::served_by(all.servers));
}
