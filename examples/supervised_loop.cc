// SPDX-License-Identifier: Apache-2.0
// A training loop of one's own under a supervisor: stop it in any way, start it again, and it goes
// on. Usage: supervised_loop LOGDIR [epochs]
#include <cstdio>
#include <cstdlib>
#include <ronde/trainer.hpp>

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

static int train(const char* logdir, std::size_t epochs) {
  const FashionMnist images = load_fashion_mnist(kFashionMnistDirectory);
  const auto network = make_mlp(784, 128, 10, 1);  // outlives the engine
  ronde::Engine engine;
  EngineReplica replica(engine);
  const auto rank = static_cast<std::size_t>(engine.rank());
  const auto ranks = static_cast<std::size_t>(engine.size());
  const Dataset data = Dataset::from_images(images.train, ImageShape::kFlat)
                           .shuffle(1)
                           .batch(128)
                           .shard(rank, ranks)
                           .prefetch(1);
  const Model model(*network);
  Adam adam(model.parameters());
  DistributedOptimizer optimizer(engine, model.parameters(), model.statistics(), adam,
                                 {.schedule = {.learning_rate = 0.001}});
  Supervisor supervisor(
      replica, model, optimizer,
      {.logdir = logdir, .save_steps = 100, .flags = {{"data", data.settings()}}});
  Tape tape;
  supervisor.managed_session([&] {
    for (std::size_t epoch = supervisor.epoch(); epoch < epochs; ++epoch) {
      Epoch batches = data.epoch(epoch, supervisor.step_in_epoch());
      while (const StepBatch* batch = batches.next()) {
        const Batch& part = batch->parts.front();
        tape.begin();
        const Tensor outputs = model(tape.borrow(part.shape, part.inputs));
        optimizer.backward(tape, softmax_cross_entropy(outputs, part.labels, batch->global_size));
        optimizer.step();
        supervisor.step_done();
        if (supervisor.should_stop()) return;  // SIGTERM at any rank: all stop after this step
      }
      supervisor.epoch_done();
    }
  });
  if (supervisor.is_chief() && !supervisor.stopped()) {
    std::printf("steps=%llu param_hash=%s\n",
                static_cast<unsigned long long>(supervisor.global_step()),
                model.parameter_hash().c_str());
  }
  return supervisor.exit_code();  // 75: stopped and saved, start it again
}

int main(int argc, char** argv) try {
  if (argc < 2) throw std::invalid_argument("name a directory for its checkpoints");
  return train(argv[1], argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 2);
} catch (const std::exception& error) {
  std::fprintf(stderr, "supervised_loop: %s\n", error.what());
  return exit_code_of(error);  // 78: another start would fail alike
}
