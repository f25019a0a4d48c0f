// SPDX-License-Identifier: Apache-2.0
// Trains a network on Fashion-MNIST, alone or on all ranks of a job. The result depends on the
// number of ranks only through rounding: a global batch is the same samples for any number.
#include <memory>
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
  std::unique_ptr<DeviceMath> math;  // of --device; null: the CPU
};

void add_flags(FlagTable& flags, Settings& all) {
  flags.add({{"data", text(all.data), "directory with the four IDX files of the data set"},
             {"model", one_of(all.model, {"mlp", "cnn"}),
              "what to train: mlp (784-128-10), or cnn (3x3 convolutions of 32, 64 and 128 "
              "channels, two dense layers: 8 MiB of gradients)"},
             {"batch-norm", one_of(all.batch_norm, {"off", "local", "sync"}),
              "cnn: normalise each convolution's outputs: off, local (each rank by its own "
              "samples) or sync (by those of all ranks)"},
             {"test-images", whole(all.test_images, 1, 10'000),
              "evaluate the model on so many images at the end"}});
  add_step_flags(flags, all.step, [&all] {
    if (all.model == "mlp") return TrainingDefaults{};
    return TrainingDefaults{0.03, 0.001, ScheduleOptions::Kind::kCosine, 3};
  });
  add_run_flags(flags, all.run);
  flags.check([&all] {
    if (all.batch_norm == "off" || all.model == "cnn") return;
    throw UsageError("--batch-norm " + all.batch_norm + " is for the CNN: use --model cnn");
  });
  ronde::examples::add_device_flag(flags, all.math, all.model, all.step, all.run);
}

Loss cross_entropy(const Tensor& outputs, const Batch& batch, std::size_t global_batch) {
  return softmax_cross_entropy(outputs, batch.labels, global_batch);
}

std::unique_ptr<Sequential> make_network(const Settings& all, Replica& replica) {
  if (all.model == "mlp") return make_mlp(784, 128, 10, all.run.seed);
  CnnOptions options{.batch_norm = all.batch_norm != "off"};
  if (all.batch_norm == "sync") {
    options.sum_over_ranks = [&replica](std::span<double> sums) {
      replica.allreduce("batch_norm", sums, Reduction::kSum);
    };
  }
  return make_cnn(options, all.run.seed);
}

int work(ronde::Engine& engine, Replica& replica, const FlagTable& flags, Settings& all) {
  const auto images = on_all_ranks(replica, [&] { return load_fashion_mnist(all.data); });
  require_batch(all.step, replica.size(), images.train.size());
  const auto [rank, ranks] = share_of(replica);
  const ImageShape shape = all.model == "mlp" ? ImageShape::kFlat : ImageShape::kImage;
  const Dataset data = Dataset::from_images(images.train, shape)
                           .shuffle(all.run.seed)
                           .batch(all.step.global_batch)
                           .shard(rank, ranks, all.step.distributed.accumulate)
                           .prefetch(1);
  const Dataset test = Dataset::from_images(images.test, shape)
                           .take(all.test_images)
                           .batch(500 * ranks)
                           .shard(rank, ranks);
  finish_schedule(all.step, data.steps().value_or(1));
  const auto network = make_network(all, replica);
  const Model model(*network);
  const auto train_with = [&](Learner& learner, DistributedOptimizer* optimizer) {
    const ScheduleOptions& schedule = all.step.distributed.schedule;
    const Training training{engine, replica, learner, data, test, all.step.epochs, schedule};
    if (all.run.evaluates) return score_checkpoints(training, all.run, model);
    if (optimizer == nullptr) return train(training, all.run, nullptr);
    all.run.supervisor.flags = flags.values_of({"model", "batch-norm", "seed"});
    all.run.supervisor.flags.emplace_back("data", data.settings());
    Supervisor supervisor(replica, model, *optimizer, all.run.supervisor);
    return train(training, all.run, &supervisor);
  };
  if (all.math) {
    const auto learner = on_all_ranks(replica, [&] {
      return ronde::examples::make_device_learner(engine, *all.math, model, all.step, images);
    });
    return train_with(*learner, nullptr);
  }
  const auto local = make_optimizer(all.step.optimizer, model.parameters());
  const auto optimizer = on_all_ranks(replica, [&] {
    return std::make_unique<DistributedOptimizer>(engine, model.parameters(), model.statistics(),
                                                  *local, all.step.distributed);
  });
  HostLearner learner(model, cross_entropy, *optimizer, all.run.seed, all.run.threads);
  return train_with(learner, optimizer.get());
}

}  // namespace

int main(int argc, char** argv) {
  Settings all;
  FlagTable flags("train_fashion_mnist", "Trains a network on Fashion-MNIST with Ronde.");
  add_flags(flags, all);
  return run_program(argc, argv, flags, [&](ronde::Engine& engine, Replica& replica) {
    return work(engine, replica, flags, all);
  });
}
