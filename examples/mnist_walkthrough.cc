// SPDX-License-Identifier: Apache-2.0
// A walk through one training, step by step, as guides have it with MNIST: look at the data, make a
// network of 784-128-10, see what it guesses before, train it, score it, and see what it guesses
// now. With Fashion-MNIST, whose images are clothes.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ronde/trainer.hpp>
#include <string>
#include <vector>

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

namespace {

// Every second row and pixel, as characters.
void show_image(const Images& images, std::size_t number) {
  for (std::size_t row = 0; row < 28; row += 2) {
    std::string line;
    for (std::size_t column = 0; column < 28; ++column) {
      line += " .:-=+*#%@"[images.pixels[(number * 28 + row) * 28 + column] * 10 / 256];
    }
    std::printf("  %s\n", line.c_str());
  }
}

// The probabilities of the ten classes: the softmax of a row of outputs.
std::vector<double> probabilities(const float* outputs) {
  std::vector<double> shares(outputs, outputs + 10);
  const double most = *std::ranges::max_element(shares);
  double sum = 0.0;
  for (double& one : shares) sum += one = std::exp(one - most);
  for (double& one : shares) one /= sum;
  return shares;
}

void show_guess(const char* when, const std::vector<double>& shares, std::size_t truth) {
  const auto best = static_cast<std::size_t>(std::ranges::max_element(shares) - shares.begin());
  std::printf("  %s: %s, with a probability of %.2f; it is a %s\n", when,
              std::string(kFashionMnistClasses[best]).c_str(), shares[best],
              std::string(kFashionMnistClasses[truth]).c_str());
}

int walk(Strategy& strategy, std::size_t epochs, std::uint64_t seed) {
  const bool speaks = strategy.is_chief();
  const auto say = [speaks](const std::string& line) {
    if (speaks) std::puts(line.c_str());
  };
  const auto images = on_all_processes(strategy, [] { return load_fashion_mnist(); });
  say("1. The data: " + std::to_string(images.train.size()) + " images to learn from and " +
      std::to_string(images.test.size()) + " to test with, of 28 x 28 pixels. The first of these:");
  if (speaks) show_image(images.test, 0);
  const Dataset data =
      Dataset::from_images(images.train, ImageShape::kFlat).shuffle(seed).batch(128).prefetch(1);
  const Dataset test = Dataset::from_images(images.test, ImageShape::kFlat).batch(1000);

  Model model([seed] { return make_mlp(784, 128, 10, seed); });
  std::size_t numbers = 0;
  for (const Parameter* one : model.parameters()) numbers += one->size();
  say("2. The network: 784-128-10, " + std::to_string(numbers) + " parameters, on " +
      std::to_string(strategy.num_replicas_in_sync()) + " replicas (" + strategy.name() + ")");

  Optimizer sgd(model, {.momentum = 0.9}, {.schedule = {.learning_rate = 0.02}});
  model.compile(sgd, classification_loss, {"accuracy", "top_3_accuracy"}, seed);
  const Metrics untrained = model.evaluate(test);
  say("3. Before the training it guesses: a loss of " + std::to_string(untrained.loss()) +
      ", and chance has ln 10 = 2.3");
  const auto before = probabilities(model.predict(test).outputs.data());
  if (speaks) show_guess("its guess", before, images.test.labels[0]);

  say("4. The training: " + std::to_string(epochs) + " epochs in batches of 128");
  const FitResult fitted = model.fit(data, {.epochs = epochs});
  say("   the loss of the last epoch is " + std::to_string(fitted.training.loss()));

  const Metrics scored = model.evaluate(test);
  say("5. The score: " + std::to_string(scored.mean("accuracy")) +
      " of the test images are right, and of " + std::to_string(scored.mean("top_3_accuracy")) +
      " the class is among its three best guesses");
  const Predictions predicted = model.predict(test);
  const auto after = probabilities(predicted.outputs.data());
  if (!speaks) return 0;
  show_guess("its guess", after, images.test.labels[0]);
  std::printf(
      "ranks=%zu untrained_loss=%.6f train_loss=%.6f test_accuracy=%.4f predicted=%zu "
      "probability=%.4f param_hash=%s\n",
      strategy.num_replicas_in_sync(), untrained.loss(), fitted.training.loss(), scored.accuracy(),
      predicted.samples.size(), after[images.test.labels[0]], model.parameter_hash().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t epochs = 2;
  std::uint64_t seed = 1;
  FlagTable flags("mnist_walkthrough", "Walks through a training on Fashion-MNIST, step by step.");
  flags.add({{"epochs", whole(epochs, 1, 1000), "passes over the training data"},
             {"seed", whole(seed, 0, UINT64_MAX), "seed of the first weights and of the order"}});
  return run_program(argc, argv, flags,
                     [&](Strategy& strategy) { return walk(strategy, epochs, seed); });
}
