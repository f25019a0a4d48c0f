// SPDX-License-Identifier: Apache-2.0
// Putting the numbers of a training into a line.
#include "examples/support/result_line.h"

#include <array>
#include <cinttypes>
#include <cstdio>

namespace ronde::examples {

namespace {

// 0 where there is nothing to divide by: a training that was finished already takes no step.
double ratio(double numerator, double denominator) {
  return denominator == 0.0 ? 0.0 : numerator / denominator;
}

double ratio(std::uint64_t numerator, std::uint64_t denominator) {
  return ratio(static_cast<double>(numerator), static_cast<double>(denominator));
}

}  // namespace

ronde_statistics difference(const ronde_statistics& after, const ronde_statistics& before) {
  ronde_statistics result = after;
  result.batches -= before.batches;
  result.tensors -= before.tensors;
  result.control_bytes -= before.control_bytes;
  return result;
}

std::string result_line(const TrainingResult& result) {
  const trainer::FitResult& fit = result.fit;
  const auto steps = static_cast<double>(fit.steps);
  const double waited = ratio(fit.wait_seconds, fit.seconds);
  std::array<char, 640> text{};
  std::snprintf(
      text.data(), text.size(),
      "ranks=%d epochs=%zu train_loss=%.9g test_accuracy=%.4f seconds=%.3f "
      "images_per_second=%.0f param_hash=%s batches=%" PRIu64
      " tensors_per_batch=%.2f control_bytes_per_step=%.1f compute_share=%.3f wait_share=%.3f"
      " transfer_share=%.3f share_before_wait=%.3f straggler=%d steps=%" PRIu64
      " first_gradient_ms=%.3f update_ms=%.3f",
      result.ranks, result.epochs, result.train_loss, result.test_accuracy, fit.seconds,
      ratio(static_cast<double>(fit.samples), fit.seconds), result.parameter_hash.c_str(),
      result.used.batches, ratio(result.used.tensors, result.used.batches),
      ratio(result.used.control_bytes, fit.steps), 1.0 - waited, waited,
      ratio(fit.transfer_seconds, fit.seconds), fit.share_before_wait, fit.straggler, fit.steps,
      ratio(1e3 * fit.first_gradient_seconds, steps), ratio(1e3 * fit.update_seconds, steps));
  return text.data();
}

}  // namespace ronde::examples
