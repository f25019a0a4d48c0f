// SPDX-License-Identifier: Apache-2.0
// Steps the data planes of all ranks in one thread.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/tensor.h"
#include "collectives/plane/plane.h"
#include "collectives/transport/collective.h"

namespace ronde::collectives {

// Runs the collectives that make(rank) makes until all are done.
inline void run_planes(std::size_t ranks,
                       const std::function<DataPlane::CollectivePtr(std::size_t)>& make) {
  std::vector<DataPlane::CollectivePtr> open;
  for (std::size_t rank = 0; rank < ranks; ++rank) open.push_back(make(rank));
  std::size_t left = ranks;
  for (int round = 0; left > 0; ++round) {
    ASSERT_LT(round, 100000) << "stuck";
    for (DataPlane::CollectivePtr& collective : open) {
      if (collective == nullptr) continue;
      const auto result = collective->step();
      ASSERT_TRUE(result.ok()) << result.status().to_string();
      if (*result != StepResult::kDone) continue;
      collective.reset();
      --left;
    }
  }
}

// Either may be nullptr.
template <class Memory>
base::TensorView view(const Memory* input, Memory* output, base::DType dtype = base::DType::kF32) {
  const std::size_t bytes = input == nullptr ? output->size() : input->size();
  return {input == nullptr ? nullptr : input->data(), output == nullptr ? nullptr : output->data(),
          base::Elements(static_cast<std::int64_t>(bytes) / base::size_of(dtype)), dtype};
}

}  // namespace ronde::collectives
