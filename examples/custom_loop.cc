// SPDX-License-Identifier: Apache-2.0
// A training loop of one's own: the tape, the loss, the averager and the optimiser by hand, on
// Fashion-MNIST, alone or under mpirun. Usage: custom_loop [epochs]
#include <cstdio>
#include <cstdlib>
#include <map>

#include "bindings/trainer/data/dataset.h"
#include "bindings/trainer/data/fashion_mnist.h"
#include "bindings/trainer/loop/metrics.h"
#include "bindings/trainer/nn/model.h"
#include "bindings/trainer/optim/optimizer.h"
#include "bindings/trainer/tensor/losses.h"
#include "bindings/trainer/tensor/tape.h"
#include "examples/support/two_branches.h"

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

static void train(std::size_t epochs) {
  const FashionMnist images = load_fashion_mnist(kFashionMnistDirectory);
  ronde::examples::TwoBranches network(1);  // outlives the engine, which may read its gradients
  ronde::Engine engine;
  EngineReplica replica(engine);
  const Dataset data =
      Dataset::from_images(images.train, ImageShape::kFlat)
          .shuffle(1)
          .batch(128)  // of all ranks together
          .shard(static_cast<std::size_t>(engine.rank()), static_cast<std::size_t>(engine.size()))
          .prefetch(1);
  const Model model(network);
  Sgd optimizer(model.parameters(), {.momentum = 0.9});
  ronde::GradientAverager averager(engine, ronde::sum);  // a loss is divided by the global batch
  std::map<const Parameter*, ronde::GradientAverager::Id> ids;
  for (Parameter* parameter : model.parameters()) {
    engine.broadcast_blocking("first/" + parameter->name(), parameter->value(), 0);
    ids[parameter] = averager.add("gradient/" + parameter->name(), parameter->gradient());
  }
  Tape tape;
  for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
    Metrics mine;
    Epoch batches = data.epoch(epoch);
    while (const StepBatch* batch = batches.next()) {
      const Batch& part = batch->parts.front();
      for (Parameter* parameter : model.parameters()) parameter->begin_step();
      tape.begin();
      const Tensor outputs = model(tape.borrow(part.shape, part.inputs));
      const Loss loss = softmax_cross_entropy(outputs, part.labels, batch->global_size);
      tape.backward(loss.value, [&](Parameter& final) { averager.ready(ids.at(&final)); });
      averager.wait();  // while backward went on, the first sums were under way
      optimizer.step(0.02);
      mine.add(loss.sum, loss.correct, loss.samples);
    }
    const Metrics all = over_ranks(replica, "metrics", mine);
    if (!replica.is_chief()) continue;
    std::printf("ranks=%d epoch=%zu loss=%.6f accuracy=%.4f param_hash=%s\n", replica.size(),
                epoch + 1, all.loss(), all.accuracy(), model.parameter_hash().c_str());
  }
}

int main(int argc, char** argv) try {
  train(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 5);
} catch (const std::exception& error) {
  std::fprintf(stderr, "custom_loop: %s\n", error.what());
  return 1;
}
