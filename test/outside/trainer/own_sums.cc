// SPDX-License-Identifier: Apache-2.0
// A cross-device algorithm of somebody else's: Mirrored trains to the same bits with it.
#include <cstdio>
#include <ronde/trainer.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

namespace {

// Element by element, in the replicas' order.
void own_sum(std::span<const std::span<float>> replicas) {
  for (std::size_t i = 0; i < replicas[0].size(); ++i) {
    float total = replicas[0][i];
    for (const std::span<float> other : replicas.subspan(1)) total += other[i];
    for (const std::span<float> one : replicas) one[i] = total;
  }
}

std::string trained(CrossDeviceOps cross_device) {
  Mirrored strategy(3, std::move(cross_device));
  const Scope scope(strategy);
  Model model([] { return make_mlp(4, 8, 3, 1); });
  model.compile(adam(0.01), classification_loss);
  std::vector<float> inputs;
  std::vector<long> labels;
  for (int i = 0; i < 240; ++i) {
    inputs.push_back(static_cast<float>(i % 7) - 3.0F);
    if (i % 4 == 0) labels.push_back(i / 4 % 3);
  }
  model.fit(Dataset::from_arrays({4}, inputs, labels, 3).batch(10), {.epochs = 3});
  return model.parameter_hash();
}

}  // namespace

int main() {
  const std::string board = trained({});
  const std::string own = trained(own_sum);
  std::printf("board=%s own=%s\n", board.c_str(), own.c_str());
  return board == own ? 0 : 1;
}
