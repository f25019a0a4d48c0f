// SPDX-License-Identifier: Apache-2.0
// Loading on every rank, and agreeing on whether it worked.
#include "examples/support/data.h"

#include "bindings/trainer/loop/agreement.h"

namespace ronde::examples {

trainer::FashionMnist load_on_all_ranks(trainer::Replica& replica, const std::string& directory) {
  trainer::FashionMnist data;
  trainer::succeed_on_all(replica, [&] { data = trainer::load_fashion_mnist(directory); });
  return data;
}

}  // namespace ronde::examples
