// SPDX-License-Identifier: Apache-2.0
// Evaluations and predictions, and the data that they and fit() take.
#include <algorithm>
#include <cmath>
#include <exception>
#include <string>
#include <utility>

#include "bindings/trainer/fit/agreement.h"
#include "bindings/trainer/fit/fit.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

// Every sample is one rank's: the ranks have the same batches, and each its own part of them. Or
// else a step would take some samples several times, at a learning rate as much higher.
void require_shares(Replica& replica, const Dataset& data) {
  constexpr const char* kCut = ", cut for rank ";
  // A process trains on all of its own samples, so no part of them is another rank's.
  const Share mine = data.is_own() ? Share{static_cast<std::size_t>(replica.rank()),
                                           static_cast<std::size_t>(replica.size())}
                                   : data.share();
  const std::vector<std::string> all = gather_texts(
      replica, "loop/data",
      data.settings() + kCut + std::to_string(mine.rank) + " of " + std::to_string(mine.ranks));
  const std::string same = all[0].substr(0, all[0].rfind(kCut)) + kCut;
  const std::string ranks = std::to_string(all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == same + std::to_string(rank) + " of " + ranks) continue;
    throw AgreedError("the data is not cut between the " + ranks + " ranks: it is " +
                          grouped_by_value(all) +
                          ": give every rank the same batches, and call shard(rank, ranks) on them",
                      0, kExitConfiguration);
  }
}

Metrics evaluate(Replica& replica, Learner& learner, const Dataset& data,
                 const std::function<bool()>& stop) {
  require_shares(replica, data);
  learner.broadcast_statistics(0);
  Metrics mine;
  Epoch batches = data.epoch(0);
  std::exception_ptr failure;
  bool has_batches = true;  // they can still be had
  for (std::size_t step = 0;; ++step) {
    const StepBatch* batch = nullptr;
    try {
      if (has_batches) batch = batches.next();
      if (batch != nullptr && !failure) {
        for (const Batch& part : batch->parts) mine.add(learner.evaluate(part));
      }
    } catch (const std::exception&) {
      has_batches = batch != nullptr;  // then it is the model that has failed
      failure = std::current_exception();
    }
    // A rank that has failed asks whether to stop as often as the others.
    if (has_batches ? batch == nullptr : step >= data.steps().value_or(0)) break;
    if (!data.is_own() && stop && stop()) break;  // others may have more batches
  }
  succeed_on_all(replica, [&] {
    if (failure) std::rethrow_exception(failure);
  });
  const Metrics all = over_ranks(replica, "evaluate/metrics", mine);
  if (!std::isnan(all.loss_sum)) return all;
  throw AgreedError(
      "the loss of the evaluation is not a number: look for NaN in the data, or train "
      "again from before the parameters became so",
      0);
}

Predictions in_order(std::span<const std::uint32_t> samples, std::span<const float> outputs) {
  std::vector<std::pair<std::uint32_t, std::size_t>> rows;  // samples, and where each came
  for (const std::uint32_t sample : samples) rows.emplace_back(sample, rows.size());
  std::ranges::sort(rows);
  const std::size_t each = rows.empty() ? 0 : outputs.size() / rows.size();
  Predictions predictions;
  for (const auto& [sample, row] : rows) {
    const std::span<const float> values = outputs.subspan(row * each, each);
    if (std::ranges::any_of(values, [](float value) { return std::isnan(value); })) {
      throw TrainerError("an output for sample " + std::to_string(sample) +
                         " is not a number: look for NaN in the data and the parameters");
    }
    predictions.samples.push_back(sample);
    predictions.outputs.insert(predictions.outputs.end(), values.begin(), values.end());
  }
  return predictions;
}

Predictions predict(Replica& replica, Learner& learner, const Dataset& data) {
  require_shares(replica, data);
  if (data.is_own() && replica.size() > 1) {
    throw AgreedError(
        "predict() puts the samples of one data set into order: leave Dataset::own() out, and give "
        "all processes the same",
        0, kExitConfiguration);
  }
  learner.broadcast_statistics(0);
  Predictions predictions;
  succeed_on_all(replica, [&] {
    std::vector<std::uint32_t> samples;
    std::vector<float> outputs;
    Epoch batches = data.epoch(0);
    while (const StepBatch* const batch = batches.next()) {
      for (const Batch& part : batch->parts) {
        const std::vector<float> more = learner.predict(part);
        outputs.insert(outputs.end(), more.begin(), more.end());
        samples.insert(samples.end(), part.samples.begin(), part.samples.end());
      }
    }
    predictions = in_order(samples, outputs);
  });
  return predictions;
}

}  // namespace ronde::trainer
