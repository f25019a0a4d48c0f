// SPDX-License-Identifier: Apache-2.0
// The names and the hash of a model's parameters.
#include "bindings/trainer/nn/network.h"

#include <cinttypes>
#include <cstdio>
#include <set>
#include <span>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/hash.h"

namespace ronde::trainer {

void Network::check_names() const {
  std::set<std::string> names;
  for (const Parameter* const parameter : parameters_) {
    if (names.insert(parameter->name()).second) continue;
    throw TrainerError("two parameters of the model are called " + parameter->name() +
                       ": give each layer a name of its own");
  }
}

std::string Network::parameter_hash() const {
  Hash hash;
  for (const Parameter* const parameter : parameters_) {
    hash.add(std::as_bytes(parameter->value()));
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, hash.value());
  return digits;
}

}  // namespace ronde::trainer
