// SPDX-License-Identifier: Apache-2.0
// Trains a network on Fashion-MNIST, under any strategy. The result depends on the
// number of replicas only through rounding: a global batch is the same samples for any number.
#include <memory>
#include <ronde/parameter_server.hpp>
#include <ronde/trainer.hpp>
#include <string>

#include "examples/support/device.h"

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

namespace {

struct Settings {
  std::string data = kFashionMnistDirectory;
  std::string model = "mlp";
  std::string batch_norm = "off";
  std::size_t test_images = 10'000;
  StepSettings step;
  RunSettings run;
  server::ServerSettings servers;
  std::unique_ptr<DeviceMath> math;  // of --device; null: the CPU
};

void add_flags(FlagTable& flags, Settings& all) {
  flags.add(
      {{"data", text(all.data), "directory with the four IDX files of the data set"},
       {"model", one_of(all.model, {"mlp", "cnn"}),
        "what to train: mlp (784-128-10), or cnn (3x3 convolutions of 32, 64 and 128 "
        "channels, two dense layers: 8 MiB of gradients)"},
       {"batch-norm", one_of(all.batch_norm, {"off", "local", "sync"}),
        "cnn: normalise convolutions' outputs: off, local (by each rank's samples) or sync (by "
        "those of all ranks)"},
       {"test-images", whole(all.test_images, 1, 10'000), "evaluate on so many at the end"}});
  add_step_flags(flags, all.step, [&all] {
    return all.model == "mlp" ? TrainingDefaults{}
                              : TrainingDefaults{0.03, 0.001, ScheduleOptions::Kind::kCosine, 3};
  });
  add_run_flags(flags, all.run);
  flags.check([&all] {
    if (all.batch_norm != "off" && all.model != "cnn")
      throw UsageError("--batch-norm " + all.batch_norm + " is for the CNN: use --model cnn");
  });
  add_server_flags(flags, all.servers);
  ronde::examples::add_device_flag(flags, all.math, all.model, all.step, all.run);
}

std::unique_ptr<Layers> make_network(const Settings& all) {
  if (all.model == "mlp") return make_mlp(784, 128, 10, all.run.seed);
  CnnOptions options{.batch_norm = all.batch_norm != "off"};
  if (all.batch_norm == "sync") options.sum_over_ranks = sum_over_replicas();
  return make_cnn(options, all.run.seed);
}

int work(Strategy& strategy, const FlagTable& flags, Settings& all) {
  // A task that is sent its batches has no images.
  const bool reads = strategy.reads_data();
  const auto images = on_all_processes(
      strategy, [&] { return reads ? load_fashion_mnist(all.data) : no_fashion_mnist(); });
  const std::size_t replicas = strategy.num_replicas_in_sync();
  if (reads) require_batch(all.step, replicas, images.train.size());
  const ImageShape shape = all.model == "mlp" ? ImageShape::kFlat : ImageShape::kImage;
  const Dataset shuffled = Dataset::from_images(images.train, shape).shuffle(all.run.seed);
  const Dataset data = shuffled.batch(all.step.global_batch).prefetch(1);
  const Dataset test =
      Dataset::from_images(images.test, shape).take(all.test_images).batch(500 * replicas);
  if (reads) finish_schedule(all.step, data.steps().value_or(1) * strategy.steps_per_batch());
  const Training training{.data = data,
                          .test = test,
                          .epochs = all.step.epochs,
                          .same = flags.values_of({"model", "batch-norm", "seed"})};
  Model model([&all] { return make_network(all); });
  if (all.math) {
    return ronde::examples::train_on_device(strategy, *all.math, model.network(), all.step, images,
                                            training, all.run);
  }
  model.compile(all.step.optimizer, classification_loss, {}, all.run.seed);
  return train(model, training, all.run);
}

}  // namespace

int main(int argc, char** argv) {
  Settings all;
  FlagTable flags("train_fashion_mnist", "Trains a network on Fashion-MNIST with Ronde.");
  add_flags(flags, all);
  const auto body = [&](Strategy& strategy) { return work(strategy, flags, all); };
  return run_program(argc, argv, flags, body, server::served_by(all.servers));
}
