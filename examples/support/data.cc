// SPDX-License-Identifier: Apache-2.0
// Loading on every rank, and agreeing on whether it worked.
#include "examples/support/data.h"

#include "bindings/trainer/loop/agreement.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::examples {

trainer::FashionMnist load_on_all_ranks(trainer::Replica& replica, const std::string& directory) {
  trainer::FashionMnist data;
  std::string failure;
  try {
    data = trainer::load_fashion_mnist(directory);
  } catch (const trainer::DataError& error) {
    failure = error.what();
  }
  trainer::require_success(replica, failure);
  return data;
}

}  // namespace ronde::examples
