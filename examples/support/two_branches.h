// SPDX-License-Identifier: Apache-2.0
// A model of a class of its own, with two branches that meet again.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "bindings/trainer/nn/layers.h"
#include "bindings/trainer/tensor/operations.h"

namespace ronde::examples {

// Any class is a model that can be called and lists its parameters. From {samples, 784} to
// {samples, 10}.
class TwoBranches {
 public:
  explicit TwoBranches(std::uint64_t seed)
      : sharp_("sharp", 784, 64, trainer::Initialization::kHe, seed),
        soft_("soft", 784, 64, trainer::Initialization::kGlorot, seed),
        last_("last", 128, 10, trainer::Initialization::kGlorot, seed) {}

  trainer::Tensor operator()(const trainer::Tensor& images) {
    const std::array<trainer::Tensor, 2> branches{relu(sharp_(images)), sigmoid(soft_(images))};
    return last_(concat(branches, 1));
  }
  [[nodiscard]] std::vector<trainer::Parameter*> parameters() {
    std::vector<trainer::Parameter*> all;
    for (trainer::Linear* const layer : {&sharp_, &soft_, &last_}) {
      for (trainer::Parameter* const one : layer->parameters()) all.push_back(one);
    }
    return all;
  }

 private:
  trainer::Linear sharp_;
  trainer::Linear soft_;
  trainer::Linear last_;
};

}  // namespace ronde::examples
