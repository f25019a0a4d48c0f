// SPDX-License-Identifier: Apache-2.0
// Tells two classes of Fashion-MNIST apart with a small convolutional network, as public guides to
// distributed training do with two kinds of pictures: 20 epochs on one rank are 10 on two, in each
// of which every rank goes over as many images as the data set has, at a learning rate times the
// number of ranks. So the ranks together see as many images as one would.
#include <algorithm>
#include <array>
#include <cstdio>
#include <ronde/trainer.hpp>
#include <string>

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

namespace {

struct Settings {
  std::string data = kFashionMnistDirectory;
  std::array<std::size_t, 2> classes{0, 6};
  std::size_t epochs = 20;
  std::size_t batch = 64;
  double learning_rate = 0.0005;
  double dropout = 0.5;
  RunSettings run;
};

// Two classes with a comma between them, each by number or by name.
FlagValue two_classes(std::array<std::size_t, 2>& target) {
  FlagValue value{.text = "t-shirt,shirt",
                  .read = {},
                  .valid = "two different ones with a comma between them, each 0 to 9 or one of:"};
  for (const auto name : kFashionMnistClasses) value.valid += ' ' + std::string(name);
  value.read = [&target](const std::string& given) {
    const auto class_of = [](const std::string& word) {
      std::size_t i = 0;
      while (i < 10 && word != kFashionMnistClasses[i] && word != std::to_string(i)) ++i;
      return i;
    };
    const std::size_t comma = std::min(given.find(','), given.size());
    const std::size_t first = class_of(given.substr(0, comma));
    const std::size_t second = class_of(given.substr(std::min(comma + 1, given.size())));
    if (std::max(first, second) == 10 || first == second) return false;
    target = {first, second};
    return true;
  };
  return value;
}

void add_flags(FlagTable& flags, Settings& all) {
  flags.add(
      {{"data", text(all.data), "directory with the four IDX files of Fashion-MNIST"},
       {"classes", two_classes(all.classes), "the two classes, by number or by name"},
       {"epochs", whole(all.epochs, 1, 100'000),
        "passes over the training data, divided by the number of ranks and rounded up: in each of "
        "them every rank takes as many images as there are"},
       {"batch", whole(all.batch, 1, 100'000), "samples of a rank in a step"},
       {"learning-rate", positive(all.learning_rate, 1.0),
        "step size of Adam, multiplied by the number of ranks"},
       {"dropout", share(all.dropout), "share of the dense layer that is dropped while training"}});
  add_run_flags(flags, all.run);
}

// Over {samples, 1, 28, 28}, with one number for each sample: above 0 is the second class.
constexpr Window kConvolution{.side = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
constexpr Window kHalf{.side = {2, 2}, .stride = {2, 2}, .padding = {0, 0}};

int work(Strategy& strategy, Settings& all) {
  const auto images = on_all_processes(strategy, [&] { return load_fashion_mnist(all.data); });
  const std::size_t ranks = strategy.num_replicas_in_sync();
  const auto chosen = [&](const Images& part) {
    return Dataset::from_images(select_classes(part, all.classes), ImageShape::kImage);
  };
  const Dataset data =
      chosen(images.train).shuffle(all.run.seed).repeat(ranks).batch(all.batch * ranks).prefetch(1);
  const Dataset test = chosen(images.test).batch(250 * ranks);

  const std::size_t epochs = (all.epochs + ranks - 1) / ranks;
  const double rate = all.learning_rate * static_cast<double>(ranks);
  Sequential model({convolution(32, kConvolution).then(relu), max_pool(kHalf),
                    convolution(64, kConvolution).then(relu), max_pool(kHalf), flatten,
                    dense(128, relu), dropout(all.dropout).named("drop"), dense(1)},
                   all.run.seed);
  model.compile(adam(rate), two_classes_loss, {}, all.run.seed);
  if (strategy.is_chief() && !all.run.evaluates) {
    std::printf("%zu epochs over %zu ranks: %zu on each, with a learning rate of %g x %zu = %g\n",
                all.epochs, ranks, epochs, all.learning_rate, ranks, rate);
    std::fflush(stdout);
  }
  const std::string classes = std::to_string(all.classes[0]) + ',' + std::to_string(all.classes[1]);
  const Training training{
      .data = data,
      .test = test,
      .epochs = epochs,
      .same = {{"--classes", classes},
               {"--dropout", std::to_string(all.dropout)},
               {"--seed", std::to_string(all.run.seed)},
               {"ranks", std::to_string(ranks)}},  // what is learned depends on it
      .words = "classes=" + classes + ' '};
  return train(model, training, all.run);
}

}  // namespace

int main(int argc, char** argv) {
  Settings all;
  FlagTable flags("classify_two_classes",
                  "Tells two classes of Fashion-MNIST apart with a convolutional network.");
  add_flags(flags, all);
  return run_program(argc, argv, flags, [&all](Strategy& strategy) { return work(strategy, all); });
}
