// SPDX-License-Identifier: Apache-2.0
// The in-memory transport keeps the promises of Transport.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "collectives/transport/local.h"
#include "test/support/transport_contract.h"

namespace ronde::collectives {
namespace {

void run_contract(int ranks, const FaultPlan& plan) {
  const auto hub = std::make_shared<LocalHub>(ranks, plan);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&hub, rank] {
      Transport transport = local_transport(hub, rank);
      TransportContract(transport).run_all();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class LocalContract : public testing::TestWithParam<int> {};

TEST_P(LocalContract, IsKept) { run_contract(GetParam(), {}); }
TEST_P(LocalContract, IsKeptWithDelays) { run_contract(GetParam(), {.seed = 5, .max_delay = 3}); }
TEST_P(LocalContract, IsKeptWithSynchronousSends) {
  run_contract(GetParam(), {.synchronous_sends = true});
}

INSTANTIATE_TEST_SUITE_P(Ranks, LocalContract, testing::Values(1, 2, 3));

}  // namespace
}  // namespace ronde::collectives
