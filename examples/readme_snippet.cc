// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <ronde/ronde.hpp>
#include <vector>

int main() try {
  std::vector<float> weight(1000), bias(10);      // what your trainer learns ...
  std::vector<float> d_weight(1000), d_bias(10);  // ... and its gradients
  ronde::Engine engine;                           // joins the job; alone: a job of one

  engine.broadcast("weight", std::span(weight)).wait();  // all ranks start from rank 0's values
  engine.broadcast("bias", std::span(bias)).wait();

  ronde::GradientAverager averager(engine);
  const auto weight_id = averager.add("d_weight", std::span(d_weight));
  const auto bias_id = averager.add("d_bias", std::span(d_bias));
  for (int step = 0; step < 100; ++step) {
    for (float& g : d_bias) g = 1.0F;  // your backward pass, on this rank's samples
    averager.ready(bias_id);           // from here on it may be averaged, small ones together
    for (float& g : d_weight) g = static_cast<float>(engine.rank());
    averager.ready(weight_id);
    averager.wait();  // gradients now hold the averages
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] -= 0.01F * d_weight[i];
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] -= 0.01F * d_bias[i];
  }
  if (engine.rank() == 0) std::printf("weight %.3f, bias %.3f\n", weight[0], bias[0]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());  // one line: what, where, what to do
  return 1;
}
