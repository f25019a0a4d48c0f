// SPDX-License-Identifier: Apache-2.0
// Steps the data planes of all ranks in one thread.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/tensor.h"
#include "collectives/plane/plane.h"
#include "collectives/transport/collective.h"

namespace ronde::collectives {

// Runs the collectives that make(rank) makes until all are done.
inline void run_planes(
    std::size_t ranks,
    const std::function<base::Result<DataPlane::CollectivePtr>(std::size_t)>& make) {
  std::vector<DataPlane::CollectivePtr> open;
  for (std::size_t rank = 0; rank < ranks; ++rank) open.push_back(make(rank).value());
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

// ---- the exchanges of the tests ----

inline Exchange allreduce(std::vector<base::TensorView> tensors, const Reduction& how,
                          bool on_board, std::uint64_t sequence) {
  Exchange exchange;
  exchange.operation = base::Operation::kAllreduce;
  exchange.sequence = sequence;
  exchange.tensors = std::move(tensors);
  exchange.how = how;
  exchange.on_board = on_board;
  return exchange;
}

inline Exchange broadcast(const base::TensorView& tensor, std::int32_t root,
                          std::uint64_t sequence) {
  Exchange exchange = allreduce({tensor}, {.dtype = tensor.dtype}, false, sequence);
  exchange.operation = base::Operation::kBroadcast;
  exchange.root = root;
  return exchange;
}

inline Exchange barrier(std::uint64_t sequence) {
  Exchange exchange;
  exchange.operation = base::Operation::kBarrier;
  exchange.sequence = sequence;
  return exchange;
}

// An exchange whose rows have one element of 4 bytes; `rows` says how many come from, or go to,
// each rank. Where the operation makes a result it goes to `output`, which gets the size that it
// needs.
template <class Memory>
Exchange of_rows(base::Operation operation, const Memory& input, std::vector<std::int64_t> rows,
                 Memory& output, std::uint64_t sequence, const Reduction& how = {}) {
  const base::Elements elements(static_cast<std::int64_t>(input.size()) / 4);
  Exchange exchange =
      allreduce({{input.data(), output.data(), elements, how.dtype}}, how, false, sequence);
  exchange.operation = operation;
  exchange.rows = std::move(rows);
  exchange.row = base::Elements(1);
  exchange.result = [&output](std::span<const std::int64_t> received) {
    output.resize(std::accumulate(received.begin(), received.end(), std::size_t{0}) * 4);
    return base::Result<std::span<std::byte>>(std::span(output));
  };
  return exchange;
}

// Either may be nullptr.
template <class Memory>
base::TensorView view(const Memory* input, Memory* output, base::DType dtype = base::DType::kF32) {
  const std::size_t bytes = input == nullptr ? output->size() : input->size();
  return {input == nullptr ? nullptr : input->data(), output == nullptr ? nullptr : output->data(),
          base::Elements(static_cast<std::int64_t>(bytes) / base::size_of(dtype)), dtype};
}

}  // namespace ronde::collectives
