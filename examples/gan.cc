// SPDX-License-Identifier: Apache-2.0
// A generative adversarial network on Fashion-MNIST, small: a discriminator learns to tell images
// from what a generator makes of noise, and the generator to deceive it. Two models and two
// optimisers in one loop: three steps of the discriminator to one of the generator.
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <ronde/trainer.hpp>
#include <vector>

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

namespace {

constexpr std::size_t kNoise = 32;  // numbers that an image is made of
constexpr std::size_t kPixels = 784;

// The noise of these samples: the same for any number of replicas.
Tensor noise(Tape& tape, std::uint64_t seed, const std::vector<std::uint32_t>& samples) {
  std::vector<float> numbers;
  for (const std::uint32_t sample : samples) {
    Generator generator(seed, sample);
    for (std::size_t i = 0; i < kNoise; ++i) numbers.push_back(generator.uniform(-1.0F, 1.0F));
  }
  return tape.constant({samples.size(), kNoise}, numbers);
}

struct Gan {
  // The discriminator takes part in the generator's steps, but those do not move it.
  const OptimizerOptions options{.rule = {.kind = RuleOptions::Kind::kAdam, .beta1 = 0.5},
                                 .schedule = {.learning_rate = 0.001},
                                 .part_of_model = true};
  Sequential generator{input({kNoise}), dense(128, relu).named("generator/fc1"),
                       dense(kPixels).named("generator/fc2")};
  Sequential discriminator{input({kPixels}), dense(128, relu).named("discriminator/fc1"),
                           dense(1).named("discriminator/fc2")};
  Optimizer of_generator{generator, options};
  Optimizer of_discriminator{discriminator, options};

  // A step of a replica; each returns the loss over its samples.
  double teach_discriminator(Replica& here, const Part& real, std::uint64_t seed) {
    Tape& tape = here.tape();
    const Array fakes = Array::of(generator(noise(tape, seed, real.samples)));
    const std::array both{real.inputs, tape.constant(fakes.shape, fakes.values)};
    std::vector<int> labels(2 * real.size(), 0);
    std::fill_n(labels.begin(), real.size(), 1);
    const Loss loss =
        binary_cross_entropy(discriminator(concat(both, 0)), labels, 2 * real.global_size);
    of_discriminator.minimize(here, loss);
    return loss.value.item();
  }
  double teach_generator(Replica& here, const Part& part, std::uint64_t seed) {
    const Tensor judged = discriminator(generator(noise(here.tape(), seed, part.samples)));
    const std::vector<int> real(part.size(), 1);  // what it wants to hear
    const Loss loss = binary_cross_entropy(judged, real);
    of_generator.minimize(here, loss);
    return loss.value.item();
  }
};

// How far the mean of 256 images that it makes is from the mean of these, per pixel.
double distance(Strategy& strategy, const Model& generator, const Images& images) {
  std::vector<std::uint32_t> samples(256);
  std::iota(samples.begin(), samples.end(), 0U);
  const auto made = strategy.run([&](Replica& here) {
    here.tape().begin({.training = false});
    return Array::of(mean(generator(noise(here.tape(), 0, samples)), 0));
  });
  double squares = 0.0;
  for (std::size_t i = 0; i < kPixels; ++i) {
    double sum = 0.0;
    for (const std::uint32_t image : samples) sum += images.pixels[image * kPixels + i];
    squares += std::pow(made[0].values[i] - (sum / 256 * images.scale() + images.shift()), 2);
  }
  return std::sqrt(squares / kPixels);
}

int learn(Strategy& strategy, std::size_t rounds) {
  const auto images = on_all_processes(strategy, [] { return load_fashion_mnist(); });
  const Dataset data =
      Dataset::from_images(images.train, ImageShape::kFlat).shuffle(1).batch(64).prefetch(1);
  Gan gan;
  const double before = distance(strategy, gan.generator, images.train);
  DistributedEpoch batches = strategy.distribute(data).epoch(0);
  std::uint64_t seed = 0;
  const auto mean_of = [&](auto teach) {
    ++seed;  // new noise in each step
    const auto step = [&](Replica& here, const Part& mine) {
      return (gan.*teach)(here, mine, seed);
    };
    return strategy.reduce(ReduceOp::kSum, strategy.run(step, batches.batch()));
  };
  double discriminator = 0.0;
  double generator = 0.0;
  for (std::size_t round = 1; round <= rounds; ++round) {
    for (int i = 0; i < 3 && batches.next(); ++i)
      discriminator = mean_of(&Gan::teach_discriminator);
    generator = mean_of(&Gan::teach_generator);
    if (!strategy.is_chief() || (round % 20 != 0 && round != rounds)) continue;
    std::printf("round %zu/%zu: loss of the discriminator %.4f, of the generator %.4f\n", round,
                rounds, discriminator, generator);
  }
  const double after = distance(strategy, gan.generator, images.train);
  if (!strategy.is_chief()) return 0;
  std::printf(
      "ranks=%zu discriminator_loss=%.6f generator_loss=%.6f distance_before=%.4f "
      "distance=%.4f param_hash=%s discriminator_hash=%s\n",
      strategy.num_replicas_in_sync(), discriminator, generator, before, after,
      gan.generator.parameter_hash().c_str(), gan.discriminator.parameter_hash().c_str());
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
