// SPDX-License-Identifier: Apache-2.0
// Which of the ready tensors are executed together, and in which order. Pure, so that it can be
// tested over all small cases; called by a set's coordinator whenever the data plane is free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/numbers.h"

namespace ronde::fusion {

struct Candidate {
  std::uint64_t id = 0;
  std::uint64_t key = 0;  // tensors fuse only with an equal key; key 0 never fuses
  base::Bytes bytes;
  std::int32_t priority = 0;
};

// Takes the first of the highest priority, then adds every candidate of the same key that keeps the
// sum within `limit`, highest priority first, earlier readiness first among equals; candidates of
// another key, or too large for what is left, are skipped and stay ready. A first tensor above the
// limit goes alone. `ready` is in order of readiness; returns indices into it, in order of
// execution. Empty only if `ready` is.
[[nodiscard]] std::vector<std::size_t> next_batch(std::span<const Candidate> ready,
                                                  base::Bytes limit);

}  // namespace ronde::fusion
