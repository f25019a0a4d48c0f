// SPDX-License-Identifier: Apache-2.0
// Whether the ranks of a job hold the same numbers, and in words which of them differ.
#pragma once

#include <cstdint>
#include <ronde/ronde.hpp>
#include <span>
#include <string>
#include <vector>

#include "bindings/trainer/tensor/parameter.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

// Ranks grouped by what they said: "5 on ranks 0, 2 and 6 on rank 1". Pure.
[[nodiscard]] std::string grouped_by_value(const std::vector<std::string>& value_by_rank);

// A 64-bit hash of the numbers' bits, at the speed of memory: no other one if a single bit differs.
[[nodiscard]] std::uint64_t hash_of(std::span<const float> values);

// Collective, where the ranks' tensors differ: the first one that does, with the hash of each rank:
// "fc1/weight is 0123456789abcdef on rank 0 and ...". Empty: none does.
[[nodiscard]] std::string difference_of(Engine& engine, std::span<const StateTensor> tensors);

// What a pass has used must be listed, or it would be neither trained nor broadcast nor saved.
// Throws TrainerError that names those that are not.
void require_listed(const Tape& tape, std::span<Parameter* const> parameters,
                    std::span<const StateTensor> statistics);

}  // namespace ronde::trainer
