// SPDX-License-Identifier: Apache-2.0
// A trainer on dlib: a small network learns which of two spirals a point is on.
#include <dlib/dnn.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <ronde/ronde.hpp>
#include <vector>

using Network = dlib::loss_binary_log<dlib::fc<
    1, dlib::htan<dlib::fc<16, dlib::htan<dlib::fc<16, dlib::input<dlib::matrix<float>>>>>>>>;

int main() {
  ronde::Engine engine;
  constexpr int kPoints = 512;
  constexpr int kBatch = 64;
  constexpr int kSteps = 300;
  std::vector<dlib::matrix<float>> points;
  std::vector<float> labels;
  for (int i = 0; i < kPoints; ++i) {
    const float label = i % 2 == 0 ? 1.0F : -1.0F;
    const float turn = 0.5F + 5.0F * static_cast<float>(i) / kPoints;
    dlib::matrix<float> point(2, 1);
    point = turn * label * std::cos(turn), turn * label * std::sin(turn);
    points.push_back(point);
    labels.push_back(label);
  }
  Network network;
  std::vector<dlib::sgd> optimizers(Network::num_computational_layers, dlib::sgd(0.0F, 0.9F));
  const int batch = kBatch / engine.size(), first = batch * engine.rank();
  for (int step = 0; step < kSteps; ++step) {
    std::vector<dlib::matrix<float>> some;
    std::vector<float> answers;
    for (int i = first; i < first + batch; ++i) {
      const std::size_t sample = static_cast<std::size_t>((step * kBatch + i) * 37 % kPoints);
      some.push_back(points[sample]);
      answers.push_back(labels[sample]);
    }
    network.compute_parameter_gradients(some.begin(), some.end(), answers.begin());
    dlib::visit_layer_parameter_gradients(network, [&](std::size_t layer, dlib::tensor& gradient) {
      const std::span values(gradient.host(), gradient.size());
      engine.allreduce_blocking("layer " + std::to_string(layer), values, ronde::average);
    });
    network.update_parameters(dlib::make_sstack(optimizers), 0.05);
  }
  if (engine.rank() == 0)
    std::printf("loss=%.5f\n", network.compute_loss(points.begin(), points.end(), labels.begin()));
}
