// SPDX-License-Identifier: Apache-2.0
// Learns y = 2 x + 10 from noisy samples, of which every replica draws its own, in a
// loop under a supervisor. As guides to distributed training have it, one random sample a step:
// --learning_rate 3e-5 --batch 1 --steps 300000 --steps_to_validate 30000
//
// Or with parameter servers, started by hand in as many shells as there are tasks, where that rate
// and batch are the defaults:
//
//   hosts="--ps_hosts 127.0.0.1:2222 --worker_hosts 127.0.0.1:2223,127.0.0.1:2224"
//   linear_regression $hosts --job_name ps
//   linear_regression $hosts --job_name worker --task_index 0
//   linear_regression $hosts --job_name worker --task_index 1
#include <array>
#include <cmath>
#include <cstdio>
#include <ronde/parameter_server.hpp>
#include <ronde/trainer.hpp>
#include <string>

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

namespace {

struct Settings {
  std::size_t steps = 500;
  std::size_t steps_to_validate = 50;
  std::size_t batch = 64;
  double learning_rate = 0.05;
  double momentum = 0.0;
  std::uint64_t seed = 1;
  SupervisorOptions chief;
  server::ServerSettings servers;
};

// So many steps, each of as many samples as all replicas take, new ones in each repetition.
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

// On each replica: takes the steps that are left.
void descend(const TrainingReplica& one, const Settings& all, const Dataset& data,
             Supervisor& supervisor) {
  const float& weight = one.model.parameters()[0]->value()[0];
  const float& bias = one.model.parameters()[1]->value()[0];
  const double start = steady_seconds();
  Epoch batches = one.shard(data).epoch(0, supervisor.global_step());
  while (const StepBatch* batch = batches.next()) {
    one.learner.step(*batch, 0);
    supervisor.step_done();
    const std::size_t step = batch->step + 1;
    if (step % all.steps_to_validate == 0 || step == all.steps) {
      const Metrics last = over_ranks(one.replica(), "loss", one.learner.last_step());
      if (one.here.is_chief()) {
        std::printf("step %zu/%zu: weight %.4f, bias %.4f, loss %.6g\n", step, all.steps, weight,
                    bias, last.loss());
      }
    }
    if (supervisor.should_stop()) return;
  }
  if (!std::isfinite(weight) || !std::isfinite(bias)) throw NotFiniteStep("", "", 0);
  const std::string hash = one.model.parameter_hash();
  require_same_parameters(one.replica(), hash);
  std::array<char, 200> line{};
  std::snprintf(line.data(), line.size(),
                "ranks=%d weight=%.6f bias=%.6f seconds=%.3f param_hash=%s", one.replica().size(),
                weight, bias, steady_seconds() - start, hash.c_str());
  supervisor.finish(line.data());
}

int learn(const TrainingReplica& one, const Settings& all, const Dataset& data) {
  Supervisor supervisor(one.replica(), one.model, one.optimizer, all.chief);
  try {
    supervisor.managed_session([&] { descend(one, all, data, supervisor); });
  } catch (const NotFiniteStep&) {  // on every replica
    throw AgreedError("the line is not finite any more: use a smaller learning rate or momentum", 0,
                      kExitConfiguration);
  }
  if (one.here.is_chief() && supervisor.result()) std::puts(supervisor.result()->c_str());
  return supervisor.exit_code();
}

int learn_on_servers(const FlagTable& flags, const Settings& all) {
  Linear line("line", 1, 1, Initialization::kGlorot, all.seed);
  const Model model(line);
  const auto number = [&](std::size_t i) { return model.parameters()[i]->value().data(); };
  const auto data = [&](std::size_t workers, std::uint64_t /*steps_per_batch*/) {
    return server::ServerData{.data = noisy_line(all.seed, all.batch * workers, all.steps),
                              .test = noisy_line(all.seed + 1, 1000, 1),
                              .steps = all.steps,
                              .schedule = {.learning_rate = all.learning_rate},
                              .same = flags.values_of({"seed", "batch"})};
  };
  return train_on_servers(all.servers, {.model = model,
                                        .loss = regression_loss,
                                        .optimizer = {.momentum = all.momentum},
                                        .chief = all.chief,
                                        .print_every = all.steps_to_validate,
                                        .watch = {{"weight", number(0)}, {"bias", number(1)}},
                                        .data = data});
}

// A program as the guides', which are for servers, has their settings.
void add_guide_defaults(FlagTable& flags, const server::ServerSettings& servers) {
  flags.check([&flags, &servers] {
    if (!servers.chosen) return;
    flags.otherwise("steps", "150000");
    flags.otherwise("steps-to-validate", "1000");
    flags.otherwise("batch", "1");
    flags.otherwise("learning-rate", "3e-5");
  });
}

}  // namespace

int main(int argc, char** argv) {
  Settings all;
  FlagTable flags("linear_regression", "Learns y = 2 x + 10 from noisy samples with Ronde.");
  flags.add(
      {{"steps", whole(all.steps, 1, 10'000'000), "steps down the gradient; 150000 with servers"},
       {"steps-to-validate", whole(all.steps_to_validate, 1, 10'000'000),
        "print the line and the loss after so many steps; 1000 with servers"},
       {"batch", whole(all.batch, 1, 100'000), "samples of a rank in a step; 1 with servers"},
       {"learning-rate", positive(all.learning_rate, 1.0), "step size; 3e-5 with servers"},
       {"momentum", share(all.momentum), "share of the last step that is kept"},
       {"seed", whole(all.seed, 0, UINT64_MAX), "seed of the first weight and of the samples"}});
  add_supervisor_flags(flags, all.chief);
  add_server_flags(flags, all.servers);
  add_guide_defaults(flags, all.servers);
  const auto by_replicas = [&](Strategy& strategy) {
    const std::size_t batch = all.batch * strategy.num_replicas_in_sync();
    const Dataset data = noisy_line(all.seed, batch, all.steps);
    StrategyModel model([&] { return Linear("line", 1, 1, Initialization::kGlorot, all.seed); });
    StrategyOptimizer sgd(model, {.momentum = all.momentum},
                          {.schedule = {.learning_rate = all.learning_rate}});
    model.compile(sgd, regression_loss);
    all.chief.flags = flags.values_of({"seed", "batch"});
    const auto codes =
        model.train([&](const TrainingReplica& one) { return learn(one, all, data); });
    return codes.values().front();
  };
  return run_program(argc, argv, flags, by_replicas, [&] { return learn_on_servers(flags, all); });
}
