// SPDX-License-Identifier: Apache-2.0
// A training loop of one's own under a supervisor: stop it in any way, start it again, and it goes
// on.
#include <cstdio>
#include <ronde/trainer.hpp>

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

static int train(Strategy& strategy, SupervisorOptions chief, std::size_t epochs) {
  const auto images = on_all_processes(strategy, [] { return load_fashion_mnist(); });
  const Dataset data =
      Dataset::from_images(images.train, ImageShape::kFlat).shuffle(1).batch(128).prefetch(1);
  Sequential model{input({784}), dense(128, relu), dense(10)};
  model.compile(adam(0.001), classification_loss);
  chief.flags = {{"data", data.settings()}};
  const auto replica = [&](Replica& here) {
    Supervisor supervisor(here, model.optimizer(), chief);
    supervisor.managed_session([&] {
      for (std::size_t epoch = supervisor.epoch(); epoch < epochs; ++epoch) {
        Epoch batches = here.shard(data).epoch(epoch, supervisor.step_in_epoch());
        while (const StepBatch* batch = batches.next()) {
          model.learner().step(*batch, epoch);  // custom_loop.cc has what it does
          supervisor.step_done();
          if (supervisor.should_stop()) return;  // SIGTERM at any rank: all stop after this step
        }
        supervisor.epoch_done();
      }
    });
    if (supervisor.is_chief() && !supervisor.stopped()) {
      std::printf("steps=%ju param_hash=%s\n", std::uintmax_t{supervisor.global_step()},
                  model.parameter_hash().c_str());
    }
    return supervisor.exit_code();  // 75: stopped and saved, start it again
  };
  return strategy.run(replica).values().front();
}

int main(int argc, char** argv) {
  SupervisorOptions chief;
  chief.save_steps = 100;
  std::size_t epochs = 2;
  FlagTable flags("supervised_loop", "Trains in a loop of its own that can be stopped.");
  flags.add({{"epochs", whole(epochs, 1, 1000), "passes over the training data"}});
  add_supervisor_flags(flags, chief);
  return run_program(argc, argv, flags,
                     [&](Strategy& strategy) { return train(strategy, chief, epochs); });
}
