// SPDX-License-Identifier: Apache-2.0
// The flags of train_fashion_mnist.
#include "examples/support/fashion_settings.h"

#include <cstdlib>

#include "bindings/trainer/data/fashion_mnist.h"
#include "examples/support/command_line.h"

namespace ronde::examples {

namespace {

void add_flags(CommandLine& line) {
  line.add_flag("data", trainer::kFashionMnistDirectory,
                "directory with the four IDX files of the data set");
  line.add_flag("model", "mlp",
                "what to train: mlp (784-128-10), or cnn (3x3 convolutions of 32, 64 and 128 "
                "channels, two dense layers: 8 MiB of gradients)");
  line.add_flag("batch-norm", "off",
                "cnn: normalise each convolution's outputs: off, local (each rank by its own "
                "samples) or sync (by those of all ranks)");
  line.add_flag("device", "cpu",
                "where to train: cpu, or cuda (mlp: a GPU; the ranks of a host take "
                "them in turns)");
  add_training_flags(line);
  line.add_flag("steps", "0", "stop after so many steps; 0: after all epochs");
  line.add_flag("test-images", "10000", "evaluate the model on so many images at the end");
  add_chief_flags(line);
  line.add_flag("job", "train",
                "train; or evaluate: score each checkpoint that appears in --logdir, beside the "
                "training, as a process of its own without mpirun");
  line.add_flag(
      "idle-seconds", "60",
      "evaluate: end after so many seconds without a new checkpoint or a sign of a training");
  line.add_flag("plot", "", "write the loss of each epoch as a picture to this file (SVG)");
}

void refuse_on_device(const FashionSettings& settings) {
  if (settings.device == "cpu") return;
  const std::string device = " with --device " + settings.device;
  const trainer::DistributedOptions& how = settings.training.distributed;
  const auto refuse = [&](bool wrong, const char* flag) {
    if (wrong)
      throw UsageError(std::string(flag) + " is for training in host memory: leave it out" +
                       device);
  };
  refuse(settings.model != "mlp", "--model cnn");
  refuse(how.shuffle_seed != 0, "--shuffle-submission");
  refuse(how.accumulate != 1, "--accumulate");
  refuse(how.clip_norm != 0.0, "--clip");
  refuse(how.wire != ronde::Compression::kNone, "--wire");
  refuse(how.gradients != trainer::Gradients::kPlain, "--gradients");
  refuse(!how.overlap, "--overlap");
  refuse(how.bucket_bytes != trainer::DistributedOptions{}.bucket_bytes, "--bucket-bytes");
  refuse(how.schedule.kind != trainer::ScheduleOptions::Kind::kConstant, "--schedule");
  refuse(how.schedule.warmup != 0, "--warmup");
  refuse(settings.training.threads != 1, "--threads");
  refuse(settings.chief.log_every != 0, "--log-every");
  refuse(!settings.chief.supervisor.logdir.empty(), "--logdir");
  refuse(settings.chief.patience != 0, "--early-stopping");
  const trainer::OptimizerOptions& optimizer = settings.training.optimizer;
  refuse(optimizer.kind != trainer::OptimizerOptions::Kind::kSgd, "--optimizer");
  refuse(optimizer.nesterov, "--nesterov");
  refuse(optimizer.weight_decay.has_value(), "--weight-decay");
}

}  // namespace

bool read_settings(const char* program, int argc, char** argv, FashionSettings& settings) {
  CommandLine line(program, "Trains a network on Fashion-MNIST with Ronde.");
  add_flags(line);
  if (!line.parse(argc, argv)) return false;
  settings.data = line.text("data");
  settings.model = line.choice("model", {"mlp", "cnn"});
  settings.batch_norm = line.choice("batch-norm", {"off", "local", "sync"});
  settings.device = line.choice("device", {"cpu", "cuda"});
  TrainingDefaults defaults;
  if (settings.model == "cnn") {
    defaults = {.sgd_rate = 0.03, .adam_rate = 0.001, .schedule = "cosine", .epochs = 3};
  }
  settings.training = read_training_flags(line, defaults);
  settings.steps = line.integer("steps", 0, 1'000'000'000);
  settings.test_images = line.integer("test-images", 1, 10'000);
  settings.chief = read_chief_flags(line);
  settings.evaluates = line.choice("job", {"train", "evaluate"}) == "evaluate";
  settings.idle_seconds = line.positive("idle-seconds", 1e9);
  if (settings.evaluates && std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) {
    throw UsageError("--job evaluate is a process of its own: start it without mpirun");
  }
  if (settings.evaluates && settings.chief.supervisor.logdir.empty()) {
    throw UsageError("--job evaluate needs the --logdir of a training");
  }
  settings.plot = line.text("plot");
  if (settings.batch_norm != "off" && settings.model != "cnn") {
    throw UsageError("--batch-norm " + settings.batch_norm + " is for the CNN: use --model cnn");
  }
  refuse_on_device(settings);
  settings.flags = line.flags();
  return true;
}

}  // namespace ronde::examples
