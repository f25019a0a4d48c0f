// SPDX-License-Identifier: Apache-2.0
// A model and a training loop of one's own, under any strategy: a program to copy.
#include <ronde/parameter_server.hpp>
#include <ronde/trainer.hpp>
using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would
struct TwoBranches {             // any class is a model that can be called and lists its parameters
  Linear sharp{"sharp", 784, 64, Initialization::kHe, 1};
  Linear soft{"soft", 784, 64, Initialization::kGlorot, 1};
  Linear last{"last", 128, 10, Initialization::kGlorot, 1};
  Tensor operator()(const Tensor& x) { return last(concat({relu(sharp(x)), sigmoid(soft(x))}, 1)); }
  std::vector<Parameter*> parameters() { return parameters_of({&sharp, &soft, &last}); }
};
int main(int argc, char** argv) {
  std::size_t epochs = 5;
  FlagTable flags("custom_loop", "Trains a model of its own in a loop of its own.");
  flags.add({{"epochs", whole(epochs, 1, 1000), "passes over the training data"}});
  return server::run_with_servers(argc, argv, flags, [&](Strategy& strategy) {
    const auto images = on_all_processes(strategy, [] { return load_fashion_mnist(); });
    const auto data = Dataset::from_images(images.train, ImageShape::kFlat).shuffle(1).batch(128);
    const auto batches = strategy.distribute(data.prefetch(1));
    Model model([] { return TwoBranches(); });
    const Optimizer optimizer(model, sgd(0.02, 0.9));
    const auto step = [&](Replica& here, const Part& batch) {
      return here.minimize(softmax_cross_entropy(model(batch.inputs), batch.labels));
    };
    for (std::size_t epoch = 1; epoch <= epochs; ++epoch) {
      Metrics all;
      for (const auto& batch : batches.epoch(epoch - 1)) all.add(total(strategy.run(step, batch)));
      strategy.say(formatted("ranks=%zu epoch=%zu loss=%.6f accuracy=%.4f param_hash=%s",
                             strategy.num_replicas_in_sync(), epoch, all.loss(), all.accuracy(),
                             model.parameter_hash().c_str()));
    }
  });
}
