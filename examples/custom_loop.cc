// SPDX-License-Identifier: Apache-2.0
// A model and a training loop of one's own, on Fashion-MNIST, alone or under mpirun: a program to
// copy. Usage: custom_loop [epochs]
#include <array>
#include <charconv>
#include <cstdio>
#include <ronde/trainer.hpp>
#include <string_view>
#include <vector>

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

// Any class is a model that can be called and lists its parameters; here two branches meet again.
class TwoBranches {
 public:
  Tensor operator()(const Tensor& images) {
    const std::array branches{relu(sharp_(images)), sigmoid(soft_(images))};
    return last_(concat(branches, 1));
  }
  [[nodiscard]] std::vector<Parameter*> parameters() {
    std::vector<Parameter*> all;
    for (Linear* const layer : {&sharp_, &soft_, &last_}) {
      for (Parameter* const one : layer->parameters()) all.push_back(one);
    }
    return all;
  }

 private:
  Linear sharp_{"sharp", 784, 64, Initialization::kHe, 1};
  Linear soft_{"soft", 784, 64, Initialization::kGlorot, 1};
  Linear last_{"last", 128, 10, Initialization::kGlorot, 1};
};

static void train(std::size_t epochs) {
  const FashionMnist images = load_fashion_mnist(kFashionMnistDirectory);
  TwoBranches network;  // outlives the engine, which may read its gradients
  ronde::Engine engine;
  EngineReplica replica(engine);
  const Dataset data =
      Dataset::from_images(images.train, ImageShape::kFlat)
          .shuffle(1)
          .batch(128)  // of all ranks together
          .shard(static_cast<std::size_t>(engine.rank()), static_cast<std::size_t>(engine.size()))
          .prefetch(1);
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
    std::printf("ranks=%d epoch=%zu loss=%.6f accuracy=%.4f param_hash=%s\n", replica.size(),
                epoch + 1, all.loss(), all.accuracy(), model.parameter_hash().c_str());
  }
}

int main(int argc, char** argv) try {
  std::size_t epochs = 5;
  const std::string_view text = argc > 1 ? argv[1] : "5";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), epochs);
  if (argc > 2 || error != std::errc() || end != text.data() + text.size() || epochs == 0) {
    std::fputs("usage: custom_loop [epochs], which are a whole number from 1\n", stderr);
    return 2;
  }
  train(epochs);
} catch (const std::exception& error) {
  std::fprintf(stderr, "custom_loop: %s\n", error.what());
  return exit_code_of(error);  // 78: another start would fail alike
}
