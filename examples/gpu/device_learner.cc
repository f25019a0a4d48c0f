// SPDX-License-Identifier: Apache-2.0
// A step of a multilayer perceptron on a device.
#include "examples/gpu/device_learner.h"

#include <algorithm>
#include <exception>
#include <span>
#include <string>
#include <utility>

#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

constexpr std::size_t kWeight1 = 0;
constexpr std::size_t kBias1 = 1;
constexpr std::size_t kWeight2 = 2;
constexpr std::size_t kBias2 = 3;
constexpr std::size_t kParameters = 4;

const Shape& weight(const Network& model, std::size_t index) {
  if (model.parameters().size() != kParameters) {
    throw TrainerError("a device learns two dense layers with a ReLU between them: use make_mlp");
  }
  return model.parameters()[index]->shape();
}

}  // namespace

std::uint8_t* DeviceLearner::Staging::room(std::size_t bytes) {
  if (bytes > bytes_) {
    math_.release_staging(memory_);
    memory_ = nullptr;
    bytes_ = 0;
    memory_ = math_.allocate_staging(bytes);
    bytes_ = bytes;
  }
  return static_cast<std::uint8_t*>(memory_);
}

DeviceLearner::DeviceLearner(Engine& engine, DeviceMath& math, Network model, const DeviceSgd& sgd,
                             const Images& images)
    : engine_(engine),
      math_(math),
      model_(std::move(model)),
      sgd_(sgd),
      images_of_training_(images),
      evaluated_(&images),
      features_(weight(model_, kWeight1)[0]),
      hidden_(weight(model_, kWeight1)[1]),
      classes_(weight(model_, kWeight2)[1]),
      staging_{Staging(math), Staging(math), Staging(math)},
      bytes_(math),
      images_(math),
      active_(math),
      logits_(math),
      logit_gradient_(math),
      active_gradient_(math),
      sums_(math) {
  for (const Parameter* parameter : model_.parameters()) {
    Twin& twin = twins_.emplace_back(math_);
    const std::span<const float> values = parameter->value();
    twin.value.resize(values.size());
    math_.write(twin.value.data(), values.data(), values.size_bytes());
    twin.gradient.resize(values.size());
    if (sgd_.momentum == 0.0) continue;
    twin.velocity.resize(values.size());
    twin.velocity.clear();
  }
  sums_.resize(2);
  sums_.clear();
}

DeviceLearner::~DeviceLearner() {
  for (std::vector<Work>& works : works_) {
    for (Work& work : works) work.settle(std::uncaught_exceptions() > 0);
  }
}

void DeviceLearner::broadcast_state(int root) {
  std::vector<Work> works;
  const auto send = [&](const std::string& name, std::span<float> values) {
    const DeviceSpan<float> span(values, math_.device(), math_.stream());
    works.push_back(engine_.broadcast(name, span, root));
  };
  for (std::size_t i = 0; i < twins_.size(); ++i) {
    const std::string& name = model_.parameters()[i]->name();
    send("parameter/" + name, twins_[i].value.span());
    if (twins_[i].velocity.size() != 0) send("velocity/" + name, twins_[i].velocity.span());
  }
  for (Work& work : works) {
    math_.wait_for(work);
    work.wait();
  }
}

// Pixels travel as bytes, a quarter of what they become. Staging memory is used in turns: the copy
// out of this one was three steps ago, and the step before has waited for the sums of that one,
// which came behind the copy.
void DeviceLearner::send_batch(const Images& data, std::span<const std::uint32_t> samples) {
  const std::size_t pixels = samples.size() * features_;
  if (data.features() != features_) {
    throw TrainerError("the images have " + std::to_string(data.features()) +
                       " pixels, the model " + std::to_string(features_) +
                       " inputs: make them equal");
  }
  images_.resize(pixels);
  bytes_.resize(pixels + samples.size());
  if (samples.empty()) return;
  std::uint8_t* const staging = staging_[batches_++ % staging_.size()].room(bytes_.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    std::copy_n(data.pixels.data() + samples[i] * features_, features_, staging + i * features_);
    staging[pixels + i] = data.labels[samples[i]];
    if (staging[pixels + i] >= classes_) {
      throw TrainerError("label " + std::to_string(staging[pixels + i]) + " of sample " +
                         std::to_string(samples[i]) +
                         " has no output: give the model an output per class");
    }
  }
  math_.send(bytes_.data(), staging, bytes_.size());
  math_.normalize(bytes_.data(), images_.data(), pixels, data.scale(), data.shift());
}

void DeviceLearner::forward(std::size_t rows, float* gradient, DeviceSums* sums,
                            std::size_t global_size) {
  active_.resize(rows * hidden_);
  logits_.resize(rows * classes_);
  if (rows == 0) return;
  math_.multiply({Product::Kind::kPlain, images_.data(), twins_[kWeight1].value.data(),
                  active_.data(), rows, hidden_, features_});
  math_.add_to_rows(twins_[kBias1].value.data(), active_.data(), rows, hidden_);
  math_.relu(active_.data(), active_.size());
  math_.multiply({Product::Kind::kPlain, active_.data(), twins_[kWeight2].value.data(),
                  logits_.data(), rows, classes_, hidden_});
  math_.add_to_rows(twins_[kBias2].value.data(), logits_.data(), rows, classes_);
  SoftmaxTask task;
  task.logits = logits_.data();
  task.labels = bytes_.data() + rows * features_;
  task.gradient = gradient;
  task.sums = sums;
  task.rows = rows;
  task.columns = classes_;
  task.global_batch = global_size;
  math_.softmax_cross_entropy(task);
}

// The last layer's gradients first: their sums are under way while the first layer's are computed.
void DeviceLearner::backward(std::size_t rows) {
  math_.multiply({Product::Kind::kLeftTransposed, active_.data(), logit_gradient_.data(),
                  twins_[kWeight2].gradient.data(), hidden_, classes_, rows});
  submit(kWeight2);
  math_.sum_of_rows(logit_gradient_.data(), twins_[kBias2].gradient.data(), rows, classes_);
  submit(kBias2);
  active_gradient_.resize(rows * hidden_);
  math_.multiply({Product::Kind::kRightTransposed, logit_gradient_.data(),
                  twins_[kWeight2].value.data(), active_gradient_.data(), rows, hidden_, classes_});
  math_.relu_backward(active_.data(), active_gradient_.data(), active_gradient_.size());
  math_.multiply({Product::Kind::kLeftTransposed, images_.data(), active_gradient_.data(),
                  twins_[kWeight1].gradient.data(), features_, hidden_, rows});
  submit(kWeight1);
  math_.sum_of_rows(active_gradient_.data(), twins_[kBias1].gradient.data(), rows, hidden_);
  submit(kBias1);
}

void DeviceLearner::submit(std::size_t parameter) {
  const DeviceSpan<float> gradient(twins_[parameter].gradient.span(), math_.device(),
                                   math_.stream());
  std::string name = "gradient/" + model_.parameters()[parameter]->name();
  if (steps_ % works_.size() != 0) name += ", odd steps";
  works_of_step().push_back(engine_.allreduce(name, gradient, ronde::sum));
}

void DeviceLearner::finish(std::vector<Work>& works) {
  const double begin = steady_seconds();
  std::exception_ptr first;
  for (Work& work : works) {
    try {
      work.wait();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  works.clear();
  waited_seconds_ += steady_seconds() - begin;
  if (first) std::rethrow_exception(first);
}

void DeviceLearner::finish_sums() {
  for (std::vector<Work>& works : works_) finish(works);
}

void DeviceLearner::try_shapes(const Batch& /*batch*/) {
  if (images_of_training_.features() == features_) return;
  throw TrainerError("the images have " + std::to_string(images_of_training_.features()) +
                     " pixels, the model " + std::to_string(features_) +
                     " inputs: make them equal");
}

void DeviceLearner::step(const StepBatch& batch, std::uint64_t /*epoch*/) {
  if (batch.parts.size() != 1) {
    throw TrainerError("a device learns one micro-batch a step: leave accumulation out");
  }
  if (!batch.failure.empty()) throw TrainerError(batch.failure);
  const std::span<const std::uint32_t> samples = batch.parts[0].samples;
  const std::size_t global_size = batch.global_size;
  samples_ += samples.size();
  send_batch(images_of_training_, samples);
  logit_gradient_.resize(samples.size() * classes_);
  forward(samples.size(), logit_gradient_.data(), sums_.data(), global_size);
  finish(works_of_step());
  if (samples.empty()) {
    // Sums over no samples: the other ranks wait for them all the same.
    for (std::size_t i = kParameters; i-- > 0;) {
      twins_[i].gradient.clear();
      submit(i);
    }
  } else {
    backward(samples.size());
  }
  for (Work& work : works_of_step()) math_.wait_for(work);
  for (const Twin& twin : twins_) {
    SgdTask task;
    task.value = twin.value.data();
    task.velocity = twin.velocity.size() == 0 ? nullptr : twin.velocity.data();
    task.gradient = twin.gradient.data();
    task.count = twin.value.size();
    task.learning_rate = static_cast<float>(sgd_.learning_rate);
    task.momentum = static_cast<float>(sgd_.momentum);
    math_.sgd(task);
  }
  ++steps_;
}

Metrics DeviceLearner::take_metrics() {
  finish_sums();
  DeviceSums sums;
  math_.read(&sums, sums_.data(), sizeof sums);
  math_.clear(sums_.data(), sizeof sums);
  Metrics metrics;
  metrics.add(sums.loss, static_cast<std::size_t>(sums.correct), std::exchange(samples_, 0));
  return metrics;
}

Metrics DeviceLearner::evaluate(const Batch& batch) {
  finish_sums();
  DeviceSums* const counted = sums_.data() + 1;
  math_.clear(counted, sizeof *counted);
  send_batch(*evaluated_, batch.samples);
  forward(batch.size(), nullptr, counted, 1);
  DeviceSums sums;
  math_.read(&sums, counted, sizeof sums);
  Metrics metrics;
  metrics.add(sums.loss, static_cast<std::size_t>(sums.correct), batch.size());
  return metrics;
}

std::vector<float> DeviceLearner::predict(const Batch& batch) {
  finish_sums();
  send_batch(*evaluated_, batch.samples);
  forward(batch.size(), nullptr, sums_.data() + 1, 1);
  std::vector<float> logits(batch.size() * classes_);
  math_.read(logits.data(), logits_.data(), logits.size() * sizeof(float));
  return logits;
}

std::string DeviceLearner::parameter_hash() {
  finish_sums();
  for (std::size_t i = 0; i < twins_.size(); ++i) {
    const std::span<float> values = model_.parameters()[i]->value();
    math_.read(values.data(), twins_[i].value.data(), values.size_bytes());
    model_.parameters()[i]->changed();
  }
  return model_.parameter_hash();
}

}  // namespace ronde::trainer
