// SPDX-License-Identifier: Apache-2.0
// A walk through one training, step by step, as guides have it with MNIST: look at the data, see
// what a network guesses before, train it, score it, and see what it guesses now.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ronde/trainer.hpp>
using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

// Every second row and pixel of the first image, as characters.
static void show_image(const Images& images) {
  for (std::size_t i = 0; i < 784; i += i % 28 == 26 ? 30 : 2) {
    std::printf("%s%c", i % 28 == 0 ? "  " : "", " .:-=+*#%@"[images.pixels[i] * 10 / 256]);
    if (i % 28 == 26) std::printf("\n");
  }
}

// The best guess for the first image; returns the probability of what it is.
static double show_guess(const Predictions& predicted, const Images& images) {
  const float* const outputs = predicted.outputs.data();
  const auto best = std::max_element(outputs, outputs + 10) - outputs;
  double sum = 0.0;
  for (int i = 0; i < 10; ++i) sum += std::exp(static_cast<double>(outputs[i]) - outputs[best]);
  std::printf("  its guess: class %td, with a probability of %.2f; it is class %d\n", best, 1 / sum,
              int{images.labels[0]});
  return std::exp(static_cast<double>(outputs[images.labels[0]]) - outputs[best]) / sum;
}

static int walk(Strategy& strategy, std::size_t epochs, std::uint64_t seed) {
  const auto images = on_all_processes(strategy, [] { return load_fashion_mnist(); });
  const auto data = Dataset::from_images(images.train, ImageShape::kFlat).shuffle(seed).batch(128);
  const Dataset test = Dataset::from_images(images.test, ImageShape::kFlat).batch(1000);
  Sequential model({dense(128, relu), dense(10)}, seed);
  model.compile(sgd(0.02, 0.9), classification_loss, {"accuracy", "top_3_accuracy"}, seed);
  const Metrics untrained = model.evaluate(test);
  const Predictions before = model.predict(test);
  const FitResult fitted = model.fit(data.prefetch(1), {.epochs = epochs});
  const Metrics scored = model.evaluate(test);
  const Predictions after = model.predict(test);
  if (!strategy.is_chief()) return 0;
  std::printf("1. %zu images to learn from, %zu to test with; the first of these:\n",
              images.train.size(), images.test.size());
  show_image(images.test);
  std::printf("2. Untrained, the loss is %.3f, and chance has ln 10 = 2.3\n", untrained.loss());
  show_guess(before, images.test);
  std::printf("3. Trained, %.3f of the images are right, %.3f among the three best guesses\n",
              scored.mean("accuracy"), scored.mean("top_3_accuracy"));
  const double probability = show_guess(after, images.test);
  std::printf(
      "ranks=%zu untrained_loss=%.6f train_loss=%.6f test_accuracy=%.4f predicted=%zu "
      "probability=%.4f param_hash=%s\n",
      strategy.num_replicas_in_sync(), untrained.loss(), fitted.training.loss(), scored.accuracy(),
      after.samples.size(), probability, model.parameter_hash().c_str());
  return 0;
}

int main(int argc, char** argv) {
  std::size_t epochs = 2;
  std::uint64_t seed = 1;
  FlagTable flags("mnist_walkthrough", "Walks through a training on Fashion-MNIST.");
  flags.add({{"epochs", whole(epochs, 1, 1000), "passes over the training data"},
             {"seed", whole(seed, 0, UINT64_MAX), "seed of the first weights and of the order"}});
  return run_program(argc, argv, flags, [&](auto& here) { return walk(here, epochs, seed); });
}
