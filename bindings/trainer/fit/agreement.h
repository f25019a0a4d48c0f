// SPDX-License-Identifier: Apache-2.0
// Whether the ranks of a job agree: on their flags, on what failed, on what they have learned.
// Every rank calls these at the same point and all of them return, or all of them throw
// AgreedError.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/optim/replicas.h"

namespace ronde::trainer {

// Name and value, in an order that is the same on every rank.
using Flags = std::vector<std::pair<std::string, std::string>>;

// The text of every rank, by rank. A text must not contain the character 0.
std::vector<std::string> gather_texts(Replica& replica, const std::string& name,
                                      const std::string& text);

// The flags in which ranks differ, with the values and the ranks that have them; empty: none. Pure.
std::string flag_differences(const std::vector<Flags>& flags_by_rank);

// Ranks with different flags would train on different batches, or wait for each other in vain.
void require_same_flags(Replica& replica, const Flags& flags);
// Calls `call`; where it throws on some rank, all of them throw the first rank's error, which that
// one should print.
void succeed_on_all(Replica& replica, const std::function<void()>& call);
void require_same_parameters(Replica& replica, const std::string& parameter_hash);

}  // namespace ronde::trainer
