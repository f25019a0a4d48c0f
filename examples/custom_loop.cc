// SPDX-License-Identifier: Apache-2.0
// A model and a training loop of one's own, on Fashion-MNIST, alone or under mpirun: a program to
// copy.
#include <array>
#include <cstdio>
#include <ronde/trainer.hpp>
#include <vector>

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

// Any class is a model that can be called and lists its parameters; here two branches meet again.
struct TwoBranches {
  Linear sharp{"sharp", 784, 64, Initialization::kHe, 1};
  Linear soft{"soft", 784, 64, Initialization::kGlorot, 1};
  Linear last{"last", 128, 10, Initialization::kGlorot, 1};

  Tensor operator()(const Tensor& images) {
    return last(concat(std::array{relu(sharp(images)), sigmoid(soft(images))}, 1));
  }
  std::vector<Parameter*> parameters() { return parameters_of({&sharp, &soft, &last}); }
};

static int learn(ronde::Engine& engine, Replica& replica, std::size_t epochs) {
  const FashionMnist images = load_fashion_mnist(kFashionMnistDirectory);
  const auto [rank, ranks] = share_of(replica);
  const Dataset data = Dataset::from_images(images.train, ImageShape::kFlat)
                           .shuffle(1)
                           .batch(128)  // of all ranks together
                           .shard(rank, ranks)
                           .prefetch(1);
  TwoBranches network;
  const Model model(network);
  Sgd sgd(model.parameters(), {.momentum = 0.9});
  DistributedOptimizer optimizer(engine, model.parameters(), model.statistics(), sgd,
                                 {.schedule = {.learning_rate = 0.02}});
  optimizer.broadcast_state();  // all ranks start from the chief's numbers
  Tape tape;
  for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
    Metrics mine;
    Epoch batches = data.epoch(epoch);
    while (const StepBatch* batch = batches.next()) {
      const Batch& part = batch->parts.front();
      tape.begin({.epoch = epoch, .samples = part.samples, .repetitions = part.repetitions});
      const Tensor outputs = model(tape.borrow(part.shape, part.inputs));
      const Loss loss = softmax_cross_entropy(outputs, part.labels, batch->global_size);
      optimizer.backward(tape, loss);  // gradients are summed while it goes on
      optimizer.step();                // throws on every rank where a number is not finite
      mine.add(loss.sum, loss.correct, loss.samples);
    }
    const Metrics all = over_ranks(replica, "metrics", mine);
    if (!replica.is_chief()) continue;
    std::printf("ranks=%zu epoch=%zu loss=%.6f accuracy=%.4f param_hash=%s\n", ranks, epoch + 1,
                all.loss(), all.accuracy(), model.parameter_hash().c_str());
  }
  return 0;
}

int main(int argc, char** argv) {
  std::size_t epochs = 5;
  FlagTable flags("custom_loop", "Trains a model of its own in a loop of its own.");
  flags.add({{"epochs", whole(epochs, 1, 1000), "passes over the training data"}});
  return run_program(argc, argv, flags, [&](ronde::Engine& engine, Replica& replica) {
    return learn(engine, replica, epochs);
  });
}
