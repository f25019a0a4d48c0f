// SPDX-License-Identifier: Apache-2.0
// See host_learner.h.
#include "bindings/trainer/host_learner.h"

#include <utility>

#include "bindings/trainer/loss.h"

namespace ronde::trainer {

HostLearner::HostLearner(Engine& engine, Model& model, const SgdOptions& sgd,
                         std::uint64_t shuffle_seed)
    : model_(model),
      sgd_(model, sgd.learning_rate, sgd.momentum),
      optimizer_(engine, model, sgd_, shuffle_seed),
      ready_([this](const Parameter& parameter) { optimizer_.gradient_ready(parameter); }) {}

void HostLearner::step(const Dataset& data, std::span<const std::uint32_t> samples,
                       std::size_t global_size) {
  // A rank without samples still submits its gradients, which are zero.
  batch_.gather(data, samples);
  const Matrix& logits = model_.forward(batch_.images);
  loss_sum_ += softmax_cross_entropy(logits, batch_.labels, global_size, &logit_gradient_).loss;
  model_.backward(batch_.images, logit_gradient_, ready_);
  optimizer_.step();
}

double HostLearner::take_loss() { return std::exchange(loss_sum_, 0.0); }

std::int64_t HostLearner::count_correct(const Dataset& data,
                                        std::span<const std::uint32_t> samples) {
  batch_.gather(data, samples);
  const Matrix& logits = model_.forward(batch_.images);
  return softmax_cross_entropy(logits, batch_.labels, 1, nullptr).correct;
}

}  // namespace ronde::trainer
