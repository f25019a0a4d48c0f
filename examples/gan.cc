// SPDX-License-Identifier: Apache-2.0
// A generative adversarial network on Fashion-MNIST, small: a discriminator learns to tell images
// from what a generator makes of noise, and the generator to deceive it. Two models and two
// optimisers in one loop: three steps of the discriminator to one of the generator.
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <ronde/trainer.hpp>
#include <string>
#include <vector>

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

namespace {

constexpr std::size_t kNoise = 32;  // numbers that an image is made of
constexpr std::size_t kPixels = 784;

std::unique_ptr<Sequential> network(const std::string& name, std::size_t inputs,
                                    std::size_t outputs) {
  auto layers = std::make_unique<Sequential>();
  layers->add<Linear>(name + "/fc1", inputs, 128U, Initialization::kHe, 1U);
  layers->add<Relu>();
  layers->add<Linear>(name + "/fc2", 128U, outputs, Initialization::kGlorot, 1U);
  return layers;
}

// The noise of these samples: the same for any number of replicas.
Tensor noise(Tape& tape, std::uint64_t seed, const std::vector<std::uint32_t>& samples) {
  std::vector<float> numbers;
  for (const std::uint32_t sample : samples) {
    Generator generator(seed, sample);
    for (std::size_t i = 0; i < kNoise; ++i) numbers.push_back(generator.uniform(-1.0F, 1.0F));
  }
  return tape.constant({samples.size(), kNoise}, numbers);
}

class Gan {
 public:
  // Each returns the loss of the step over this replica's samples.
  Loss teach_discriminator(ReplicaContext& here, const StepBatch& mine, std::uint64_t seed) {
    const Batch& part = mine.parts.front();
    Tape& tape = here.tape();
    tape.begin({.training = false});
    const Tensor made = generator_(noise(tape, seed, part.samples));
    const std::vector<float> fakes(made.values().begin(), made.values().end());
    tape.begin();
    const std::array both{tape.borrow(part.shape, part.inputs), tape.borrow(part.shape, fakes)};
    std::vector<int> labels(2 * part.size(), 0);
    std::fill_n(labels.begin(), part.size(), 1);
    const Loss loss =
        binary_cross_entropy(discriminator_(concat(both, 0)), labels, 2 * mine.global_size);
    of_discriminator_.minimize(here, loss);
    return loss;
  }
  Loss teach_generator(ReplicaContext& here, const StepBatch& mine, std::uint64_t seed) {
    const Batch& part = mine.parts.front();
    here.tape().begin();
    const Tensor judged = discriminator_(generator_(noise(here.tape(), seed, part.samples)));
    const std::vector<int> real(part.size(), 1);  // what it wants to hear
    const Loss loss = binary_cross_entropy(judged, real, mine.global_size);
    of_generator_.minimize(here, loss);
    return loss;
  }
  // How far the mean of what it makes is from the mean of these images, per pixel.
  double distance(Strategy& strategy, const Images& images) {
    const auto distances = strategy.run([&](ReplicaContext& here) {
      std::vector<std::uint32_t> samples(256);
      for (std::uint32_t i = 0; i < 256; ++i) samples[i] = i;
      here.tape().begin({.training = false});
      const Tensor made = mean(generator_(noise(here.tape(), 0, samples)), 0);
      double squares = 0.0;
      for (std::size_t i = 0; i < kPixels; ++i) {
        double sum = 0.0;
        for (const std::uint32_t image : samples) sum += images.pixels[image * kPixels + i];
        const double wanted = sum / 256 * images.scale() + images.shift();
        squares += std::pow(static_cast<double>(made.values()[i]) - wanted, 2);
      }
      return std::sqrt(squares / kPixels);
    });
    return strategy.reduce(ReduceOp::kMean, distances);
  }
  [[nodiscard]] std::string hashes() const {
    return "param_hash=" + generator_.parameter_hash() +
           " discriminator_hash=" + discriminator_.parameter_hash();
  }

 private:
  static constexpr OptimizerOptions kAdam{.kind = OptimizerOptions::Kind::kAdam, .beta1 = 0.5};
  // The discriminator takes part in the generator's steps, but those do not move it.
  const DistributedOptions options_{.schedule = {.learning_rate = 0.001}, .part_of_model = true};
  StrategyModel generator_{[] { return network("generator", kNoise, kPixels); }};
  StrategyModel discriminator_{[] { return network("discriminator", kPixels, 1); }};
  StrategyOptimizer of_generator_{generator_, kAdam, options_};
  StrategyOptimizer of_discriminator_{discriminator_, kAdam, options_};
};

int learn(Strategy& strategy, std::size_t rounds) {
  const FashionMnist images =
      on_all_processes(strategy, [] { return load_fashion_mnist(kFashionMnistDirectory); });
  const Dataset data =
      Dataset::from_images(images.train, ImageShape::kFlat).shuffle(1).batch(64).prefetch(1);
  Gan gan;
  const double before = gan.distance(strategy, images.train);
  DistributedEpoch batches = strategy.distribute(data).epoch(0);
  double of_discriminator = 0.0;
  double of_generator = 0.0;
  std::uint64_t seed = 0;
  for (std::size_t round = 1; round <= rounds; ++round) {
    const auto mean_of = [&](auto teach) {
      ++seed;  // new noise in each step
      const auto losses = strategy.run(
          [&](ReplicaContext& here, const StepBatch& mine) {
            return static_cast<double>((gan.*teach)(here, mine, seed).value.item());
          },
          batches.batch());
      return strategy.reduce(ReduceOp::kSum, losses);
    };
    for (int i = 0; i < 3 && batches.next(); ++i)
      of_discriminator = mean_of(&Gan::teach_discriminator);
    of_generator = mean_of(&Gan::teach_generator);
    if (!strategy.is_chief() || (round % 20 != 0 && round != rounds)) continue;
    std::printf("round %zu/%zu: loss of the discriminator %.4f, of the generator %.4f\n", round,
                rounds, of_discriminator, of_generator);
  }
  const double after = gan.distance(strategy, images.train);
  if (!strategy.is_chief()) return 0;
  std::printf(
      "ranks=%zu discriminator_loss=%.6f generator_loss=%.6f distance_before=%.4f "
      "distance=%.4f %s\n",
      strategy.num_replicas_in_sync(), of_discriminator, of_generator, before, after,
      gan.hashes().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t rounds = 60;
  FlagTable flags("gan", "Trains a small generative adversarial network on Fashion-MNIST.");
  flags.add({{"rounds", whole(rounds, 1, 300),
              "how often the discriminator takes three steps and the generator one"}});
  return run_program(argc, argv, flags,
                     [&](Strategy& strategy) { return learn(strategy, rounds); });
}
